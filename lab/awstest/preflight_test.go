package awstest

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/aws/adapter"
	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// deny has every call of an action rejected.
func (w *world) deny(service, action string) {
	w.Sim.Inject(awsim.Fault{
		Service: service, Action: action, Times: 99,
		Error: protocol.Errorf("UnauthorizedOperation", "You are not authorized to perform this operation.").WithStatus(403),
	})
}

func TestPreflightErrors(t *testing.T) {
	known := func(c *adapter.Config, ca []byte) {
		c.Cluster.Endpoint, c.Cluster.CABundle, c.KubernetesVersion = endpoint, base64.StdEncoding.EncodeToString(ca), "1.32"
	}
	for _, tc := range []struct {
		name    string
		prepare func(*world, *adapter.Config)
		says    []string // none = it starts
	}{
		{"all is well", func(*world, *adapter.Config) {}, nil},
		{
			"EC2 may not be called", func(w *world, _ *adapter.Config) { w.deny("ec2", "DescribeInstanceTypes") },
			[]string{"call ec2:DescribeInstanceTypes", "allow ec2:DescribeInstanceTypes", "dovetail iam-policy"},
		},
		{
			"EC2 may not be called, though the cluster is known", func(w *world, c *adapter.Config) {
				known(c, w.ca)
				w.deny("ec2",
					"DescribeInstanceTypes")
			},
			[]string{"allow ec2:DescribeInstanceTypes"},
		},
		{
			"no cluster settings, and eks:DescribeCluster is denied", func(w *world, _ *adapter.Config) { w.deny("eks", "DescribeCluster") },
			[]string{"find the cluster", "describe EKS cluster blue", "allow eks:DescribeCluster", "set --cluster-endpoint"},
		},
		{"cluster settings, and eks:DescribeCluster is denied", func(w *world, c *adapter.Config) {
			known(c, w.ca)
			w.deny("eks",
				"DescribeCluster")
		}, nil},
		{
			"there is no such cluster", func(_ *world, c *adapter.Config) { c.Cluster.Name, c.Identity.ClusterName = "green", "green" },
			[]string{"describe EKS cluster green", "No cluster found"},
		},
		{
			"credentials that AWS does not know", func(w *world, c *adapter.Config) {
				c.AWS.Credentials = w.As(awsim.Credentials{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: "x"}).Credentials
			}, []string{"AWS does not know these credentials in us-east-1"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			cfg := w.config("uid-1")
			tc.prepare(w, &cfg)
			c, err := newCloud(cfg)
			if err != nil {
				t.Fatal(err)
			}
			err = c.Preflight(t.Context(), ekscluster.APIServer{Endpoint: "https://10.100.0.1", CA: w.ca})
			if (err == nil) != (len(tc.says) == 0) {
				t.Fatalf("error %v", err)
			}
			for _, says := range tc.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("error %q does not say %q", err, says)
				}
			}
		})
	}
}

func TestMissingPermissionsAreNamedAtTheStart(t *testing.T) {
	w := newWorld(t)
	c := w.start(w.config("uid-1"))
	if got := c.MissingPermissions(t.Context()); len(got) != 0 {
		t.Errorf("missing %v, though everything is allowed", got)
	}
	for _, action := range []string{"DescribePlacementGroups", "DescribeInstanceStatus"} {
		w.deny("ec2", action)
	}
	w.Sim.Inject(
		awsim.Fault{Service: "ec2", Action: "DescribeSubnets", Error: protocol.Errorf("RequestLimitExceeded", "slow down").WithStatus(503)},
	)
	if got, want := c.MissingPermissions(t.Context()), []string{"ec2:DescribeInstanceStatus", "ec2:DescribePlacementGroups"}; !slices.Equal(
		got,
		want,
	) {
		t.Errorf("missing %v, want %v", got, want)
	}
}

func TestClusterDiscovery(t *testing.T) {
	for _, tc := range []struct {
		name     string
		set      func(*adapter.Config)
		endpoint string
		version  string
	}{
		{"nothing is set", func(*adapter.Config) {}, endpoint, "1.32"},
		{
			"the endpoint is set", func(c *adapter.Config) { c.Cluster.Endpoint = "https://private.example.com" }, "https://private.example.com",
			"1.32",
		},
		{"the API server reports its version", func(c *adapter.Config) { c.KubernetesVersion = "1.33" }, endpoint, "1.33"},
		{"the version is EKS's", func(c *adapter.Config) { c.KubernetesVersion, c.VersionFromEKS = "1.33", true }, endpoint, "1.32"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			cfg := w.config("uid-1")
			tc.set(&cfg)
			c := w.start(cfg)
			got := c.Cluster()
			if got.Endpoint != tc.endpoint || got.CABundle != base64.StdEncoding.EncodeToString(w.ca) || got.ServiceCIDR != "10.100.0.0/16" ||
				c.KubernetesVersion() != tc.version {
				t.Errorf("version %s, %+v", c.KubernetesVersion(), got)
			}
		})
	}
	t.Run("a CA of the user's is not EKS's", func(t *testing.T) {
		w := newWorld(t)
		cfg := w.config("uid-1")
		cfg.Cluster.CABundle = "b3du"
		if got := w.start(cfg).Cluster().CABundle; got != "b3du" {
			t.Errorf("CA bundle %s", got)
		}
	})
}

// A control plane upgrade is noticed without a restart, and an unsupported version is logged once.
func TestVersionIsFollowed(t *testing.T) {
	w := newWorld(t)
	var log bytes.Buffer
	version, failure := "1.32", error(nil)
	cfg := w.config("uid-1")
	cfg.KubernetesVersion = version
	cfg.ServerVersion = func(context.Context) (string, error) { return version, failure }
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	c := w.start(cfg)
	for _, step := range []struct {
		version  string
		failure  error
		want     string
		warnings int // about an unsupported version
	}{
		{"1.33", nil, "1.33", 0},
		{"1.34", errors.New("the API server is away"), "1.33", 0},
		{"1.37", nil, "1.37", 0},
		{"1.38", nil, "1.38", 1},
		{"1.38", nil, "1.38", 1},
		{"1.25", nil, "1.25", 2},
		{"2.30", nil, "2.30", 3},
	} {
		version, failure = step.version, step.failure
		err := c.RefreshVersion(t.Context())
		if !errors.Is(err, step.failure) || c.KubernetesVersion() != step.want {
			t.Errorf("after %s: version %s, error %v", step.version, c.KubernetesVersion(), err)
		}
		if warnings := strings.Count(log.String(), "not supported"); warnings != step.warnings {
			t.Errorf("after %s %d warnings about an unsupported version, want %d:\n%s", step.version, warnings, step.warnings, log.String())
		}
	}
}

// Without eks:DescribeCluster, the version follows the API server's, and the denial is logged once.
func TestVersionIsFollowedWithoutEKS(t *testing.T) {
	w := newWorld(t)
	w.deny("eks", "DescribeCluster")
	version := "1.32"
	cfg := w.config("uid-1")
	cfg.Cluster.Endpoint, cfg.Cluster.CABundle, cfg.KubernetesVersion = endpoint, base64.StdEncoding.EncodeToString(w.ca), version
	cfg.ServerVersion = func(context.Context) (string, error) { return version, nil }
	c := w.start(cfg)
	version = "1.33"
	if err := c.RefreshVersion(t.Context()); err != nil || c.KubernetesVersion() != "1.33" {
		t.Errorf("version %s, error %v", c.KubernetesVersion(), err)
	}
	w.Sim.ClearFaults()
	if err := c.RefreshVersion(t.Context()); err != nil || c.Cluster().ServiceCIDR != "10.100.0.0/16" {
		t.Errorf("the service CIDR is not learnt once EKS may be asked: %+v, %v", c.Cluster(), err)
	}
	w.deny("eks", "DescribeCluster")
	if err := c.RefreshVersion(t.Context()); err == nil {
		t.Error("the denied call is not reported")
	}
}

// An isolated VPC reaches neither Pricing nor IAM: all of a node's life goes without them, given a profile of the
// user's.
func TestIsolatedVPC(t *testing.T) {
	w := newWorld(t)
	profile := nodeClass("profile")
	resolve(t, w.start(w.config("uid-1")), profile) // its instance profile stands for one that the user has made
	before := len(w.Sim.Calls())

	cfg := w.config("uid-1")
	cfg.IsolatedVPC = true
	c := w.start(cfg)
	if err := c.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	class := nodeClass("default")
	class.Spec.Role, class.Spec.InstanceProfile = "", profile.Status.InstanceProfile
	resolve(t, c, class)
	got, err := c.Launch(t.Context(), claim("general-1", onDemand), class)
	if err != nil {
		t.Fatal(err)
	}
	w.advancePastDelays()
	if err := c.Terminate(t.Context(), destroytest.Permit(got.ProviderID)); err != nil && !errors.Is(err, cloudprovider.ErrNotFound) {
		t.Error(err)
	}
	if err := c.DeleteNodeClassResources(t.Context(), class); err != nil {
		t.Error(err)
	}
	spot := 0
	for _, call := range w.Sim.Calls()[before:] {
		if call.Service == "pricing" || call.Service == "iam" {
			t.Errorf("%s:%s was called", call.Service, call.Action)
		}
		if call.Action == "DescribeSpotPriceHistory" {
			spot++
		}
	}
	if spot == 0 {
		t.Error("spot prices were not read")
	}
}
