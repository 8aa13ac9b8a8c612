//go:build tools

// Package rayoperator pins KubeRay's operator, whose webhooks are off by default.
package rayoperator

import (
	_ "github.com/ray-project/kuberay/ray-operator"
)
