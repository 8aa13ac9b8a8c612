//go:build tools

// Package kwok pins kwok, which plays the kubelets of the test control plane.
package kwok

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
