// Command jobset-operator runs JobSet's controllers and admission webhooks.
// Unlike its own main it makes no certificates and no webhook configuration:
// both are given, so that the API server finds this process on loopback.
package main

import (
	"flag"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/controllers"
	"sigs.k8s.io/jobset/pkg/webhooks"
)

func main() {
	options := webhook.Options{Host: "127.0.0.1"}
	flag.IntVar(&options.Port, "port", 0, "where the webhooks are served")
	flag.StringVar(&options.CertDir, "cert-dir", "", "directory of the certificate and its key")
	flag.StringVar(&options.CertName, "cert", "", "file of the certificate")
	flag.StringVar(&options.KeyName, "key", "", "file of the key")
	// --kubeconfig is a flag of controller-runtime.
	flag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(options); err != nil {
		ctrl.Log.Error(err, "jobset-operator")
		os.Exit(1)
	}
}

func run(options webhook.Options) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, jobset.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:        scheme,
		Metrics:       metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(options),
	})
	if err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	if err := controllers.SetupJobSetIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := controllers.SetupPodIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	client, events := mgr.GetClient(), mgr.GetEventRecorderFor("jobset")
	if err := controllers.NewJobSetReconciler(client, scheme, events).SetupWithManager(mgr); err != nil {
		return err
	}
	if err := controllers.NewPodReconciler(client, scheme, events).SetupWithManager(mgr); err != nil {
		return err
	}
	jobSets, err := webhooks.NewJobSetWebhook(client)
	if err != nil {
		return err
	}
	if err := jobSets.SetupWebhookWithManager(mgr); err != nil {
		return err
	}
	if err := webhooks.NewPodWebhook(client).SetupWebhookWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
