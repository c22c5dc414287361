package main

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// metricsOptions is how metrics and profiles are served. Secure, both are for clients only that the API server knows and that may
// get the path.
func metricsOptions(s settings.Settings) metricsserver.Options {
	options := metricsserver.Options{BindAddress: net.JoinHostPort(s.BindAddress, strconv.Itoa(s.MetricsPort))}
	if s.EnableProfiling {
		options.ExtraHandlers = map[string]http.Handler{
			"/debug/pprof/":        http.HandlerFunc(pprof.Index),
			"/debug/pprof/profile": http.HandlerFunc(pprof.Profile),
			"/debug/pprof/symbol":  http.HandlerFunc(pprof.Symbol),
			"/debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
		}
	}
	if s.MetricsSecure {
		options.SecureServing = true
		options.FilterProvider = filters.WithAuthenticationAndAuthorization
		options.CertDir = s.MetricsCertDir
		options.TLSOpts = []func(*tls.Config){withoutHTTP2}
	}
	return options
}

// withoutHTTP2 keeps to HTTP/1.1: scrapes do not need streams, and clients can make servers spend memory and CPU on streams that they
// reset at once.
func withoutHTTP2(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }
