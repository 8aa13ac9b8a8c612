//go:build tools

// Package prometheus pins the server that scrapes Berth in a test and judges its rules and its dashboard.
package prometheus

import _ "github.com/prometheus/prometheus/cmd/prometheus"
