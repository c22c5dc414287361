package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
)

const (
	defaultServiceCIDR = "10.100.0.0/16" // as EKS chooses it
	// minServiceBits keeps a service range small enough for the API server's allocator, and
	// maxServiceBits large enough for the cluster's DNS at .10.
	minServiceBits, maxServiceBits = 12, 28
)

// Config configures a cluster.
type Config struct {
	// Name of the cluster. Required.
	Name string
	// Dir is the state directory: data, keys, logs. It is created if absent, must not hold a
	// cluster yet, and is the caller's to remove. Required.
	Dir string
	// Executable is the multi-call binary, executed as "EXECUTABLE component NAME -- ARGS" once for
	// each component. Default: the running program.
	Executable string
	// ServiceCIDR is the IPv4 range of the cluster's services. Default: 10.100.0.0/16.
	ServiceCIDR string
	// TokenWebhook is the URL of an authenticator that the API server calls for bearer tokens it
	// does not know itself. Default: none.
	TokenWebhook string
	// TokenWebhookCA is the authority of TokenWebhook's certificate, as PEM. Default: the system's.
	TokenWebhookCA []byte
	// GCPercent is GOGC of the components, unless the environment has one. Default: 400. While nodes join, garbage collection takes a
	// fifth of the API server's CPU with Go's default of 100, and a tenth with 200.
	GCPercent int
	// FeatureGates are those of Kubernetes that the API server, the controller manager and the scheduler have other than by default.
	FeatureGates map[string]bool
	// RuntimeConfig are the versions of APIs that the API server serves besides those of its default, such as scheduling.k8s.io/v1beta1.
	RuntimeConfig []string
	// BeforeControllers, if set, is called once the API server is ready, with a client of its administrator. The controller manager
	// starts after it has returned, and knows all kinds that it has installed: the garbage collector finds those that come later only
	// within 30 s, and reads their objects one by one until then.
	BeforeControllers func(ctx context.Context, admin *rest.Config) error
	// Log receives what happens to the components. Default: discarded.
	Log *slog.Logger
	// Progress, if set, is called when a component is "starting" and when it is "healthy". It is
	// called from several goroutines at once.
	Progress func(component, state string)
}

// withDefaults fills what is absent and rejects what cannot be used.
func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		return c, errors.New("control plane: Name is required")
	}
	if c.Dir == "" {
		return c, errors.New("control plane: Dir is required")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("control plane: Dir %q: %w", c.Dir, err)
	}
	c.Dir = dir
	if c.Executable == "" {
		if c.Executable, err = os.Executable(); err != nil {
			return c, fmt.Errorf("control plane: Executable: %w", err)
		}
	}
	if c.ServiceCIDR == "" {
		c.ServiceCIDR = defaultServiceCIDR
	}
	services, err := netip.ParsePrefix(c.ServiceCIDR)
	switch {
	case err != nil:
		return c, fmt.Errorf("control plane: ServiceCIDR: %w", err)
	case services != services.Masked() || !services.Addr().Is4():
		return c, fmt.Errorf("control plane: ServiceCIDR %q is not the start of an IPv4 range", c.ServiceCIDR)
	case services.Bits() < minServiceBits || services.Bits() > maxServiceBits:
		return c, fmt.Errorf("control plane: ServiceCIDR %q is not between /%d and /%d", c.ServiceCIDR, minServiceBits, maxServiceBits)
	}
	if c.GCPercent == 0 {
		c.GCPercent = 400
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.BeforeControllers == nil {
		c.BeforeControllers = func(context.Context, *rest.Config) error { return nil }
	}
	if c.Progress == nil {
		c.Progress = func(string, string) {}
	}
	return c, nil
}

// serviceIP is the n-th address of a service range that withDefaults has accepted.
func serviceIP(cidr string, n int) (string, error) {
	services, err := netip.ParsePrefix(cidr)
	if err != nil {
		return "", fmt.Errorf("service range: %w", err)
	}
	ip := services.Addr()
	for range n {
		ip = ip.Next()
	}
	return ip.String(), nil
}
