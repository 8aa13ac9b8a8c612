// Command lws-operator runs LeaderWorkerSet's controllers and admission
// webhooks. Unlike its own main it makes no certificates and no webhook
// configuration: both are given, so that the API server finds this process on
// loopback.
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
	leaderworkerset "sigs.k8s.io/lws/api/leaderworkerset/v1"
	"sigs.k8s.io/lws/pkg/controllers"
	"sigs.k8s.io/lws/pkg/webhooks"
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
		ctrl.Log.Error(err, "lws-operator")
		os.Exit(1)
	}
}

func run(options webhook.Options) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, leaderworkerset.AddToScheme} {
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
	if err := controllers.SetupIndexes(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	client, events := mgr.GetClient(), mgr.GetEventRecorderFor("leaderworkerset")
	if err := controllers.NewLeaderWorkerSetReconciler(client, scheme, events).SetupWithManager(mgr); err != nil {
		return err
	}
	// No provider of gangs: they are Berth's.
	if err := controllers.NewPodReconciler(client, scheme, events, nil).SetupWithManager(mgr); err != nil {
		return err
	}
	if err := webhooks.SetupLeaderWorkerSetWebhook(mgr); err != nil {
		return err
	}
	if err := webhooks.NewPodWebhook(nil).Setup(mgr); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
