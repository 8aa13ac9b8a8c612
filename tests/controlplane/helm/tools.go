//go:build tools

// Package tools pins the version of helm that the tests of the chart use.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
