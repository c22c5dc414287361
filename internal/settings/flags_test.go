package settings

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// variable is the environment variable of a flag.
func variable(flag string) string { return strings.ToUpper(strings.ReplaceAll(flag, "-", "_")) }

// setting is one of Karpenter's, with its default, and another value that it may have.
type setting struct{ flag, standard, other string }

// karpenters are the settings of Karpenter's core and of its AWS provider.
var karpenters = []setting{
	{"cluster-name", "", "shop"},
	{"cluster-endpoint", "", "https://example.com"},
	{"cluster-ca-bundle", "", "Y2E="},
	{"isolated-vpc", "false", "true"},
	{"eks-control-plane", "false", "true"},
	{"vm-memory-overhead-percent", "0.075", "0.1"},
	{"interruption-queue", "", "events"},
	{"reserved-enis", "0", "1"},
	{"disable-dry-run", "false", "true"},
	{"enable-zonal-shift", "false", "true"},
	{"ami-refresh-interval", "1m0s", "2m0s"},
	{"subnet-refresh-interval", "1m0s", "2m0s"},
	{"security-group-refresh-interval", "1m0s", "2m0s"},
	{"aws-feature-gates", "", "NodeClassCEL=true"},
	{"karpenter-service", "", "karpenter"},
	{"metrics-port", "8080", "9090"},
	{"health-probe-port", "8081", "9091"},
	{"kube-client-qps", "200", "50"},
	{"kube-client-burst", "300", "100"},
	{"enable-profiling", "false", "true"},
	{"disable-controller-warmup", "true", "false"},
	{"disable-leader-election", "false", "true"},
	{"disable-cluster-state-observability", "false", "true"},
	{"leader-election-name", "karpenter-leader-election", "other"},
	{"leader-election-namespace", "", "kube-system"},
	{"memory-limit", "-1", "1073741824"},
	{"cpu-requests", "1000", "2000"},
	{"log-level", "info", "debug"},
	{"log-output-paths", "stdout", "stderr"},
	{"log-error-output-paths", "stderr", "stdout"},
	{"batch-max-duration", "10s", "30s"},
	{"batch-idle-duration", "1s", "2s"},
	{"preference-policy", "Respect", "Ignore"},
	{"min-values-policy", "Strict", "BestEffort"},
	{"ignore-dra-requests", "true", "false"},
	{"feature-gates", "", "NodeOverlay=true"},
	{"legacy-node-repair", "false", "true"},
	{"scheduler-config", "", "podTopologySpread: {}"},
}

// value parses environment and arguments, and returns what a flag has come to.
func value(t *testing.T, flag string, env map[string]string, args ...string) string {
	t.Helper()
	var s Settings
	fs := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	s.Bind(fs, func(name string) string { return env[name] })
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	found := fs.Lookup(flag)
	if found == nil {
		t.Fatalf("there is no --%s", flag)
	}
	return found.Value.String()
}

func TestKarpentersSettings(t *testing.T) {
	for _, s := range karpenters {
		if got := value(t, s.flag, nil); got != s.standard {
			t.Errorf("--%s is %q by default, want %q", s.flag, got, s.standard)
		}
		if got := value(t, s.flag, nil, "--"+s.flag+"="+s.other); got != s.other {
			t.Errorf("--%s is %q by flag, want %q", s.flag, got, s.other)
		}
		if got := value(t, s.flag, map[string]string{variable(s.flag): s.other}); got != s.other {
			t.Errorf("--%s is %q by %s, want %q", s.flag, got, variable(s.flag), s.other)
		}
	}
}

func TestFlagWinsOverEnvironmentVariable(t *testing.T) {
	for _, s := range karpenters {
		t.Run(s.flag, func(t *testing.T) {
			env := map[string]string{variable(s.flag): s.other}
			want := s.standard
			if want == "" {
				want = s.other + "x"
			}
			if got := value(t, s.flag, env, "--"+s.flag+"="+want); got != want {
				t.Errorf("%q, want the flag's %q", got, want)
			}
		})
	}
}

// A setting is validated alike, whether it comes by flag or by environment variable.
func TestInvalidSettingsAreNamed(t *testing.T) {
	for _, tc := range []struct{ name, flag, value string }{
		{"no cluster name", "cluster-name", ""},
		{"relative endpoint", "cluster-endpoint", "example.com"},
		{"endpoint without host", "cluster-endpoint", "https://"},
		{"negative overhead", "vm-memory-overhead-percent", "-0.01"},
		{"negative ENIs", "reserved-enis", "-1"},
		{"images more often than once a minute", "ami-refresh-interval", "59s"},
		{"subnets more often than once a minute", "subnet-refresh-interval", "59s"},
		{"security groups more often than once a minute", "security-group-refresh-interval", "59s"},
		{"feature gates without a value", "feature-gates", "NodeOverlay"},
		{"AWS feature gate that is not a boolean", "aws-feature-gates", "NodeClassCEL=maybe"},
		{"unknown preference policy", "preference-policy", "Maybe"},
		{"negative preference cost", "preference-cost", "-0.1"},
		{"infinite preference cost", "preference-cost", "Inf"},
		{"unknown minValues policy", "min-values-policy", "Maybe"},
		{"unknown log level", "log-level", "loud"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := []string{"--" + tc.flag + "=" + tc.value}
			env := map[string]string{variable(tc.flag): tc.value}
			if tc.flag != "cluster-name" {
				args, env["CLUSTER_NAME"] = append(args, "--cluster-name=shop"), "shop"
			}
			_, _, byFlag := parse(t, nil, args...)
			_, _, byVariable := parse(t, env)
			for _, err := range []error{byFlag, byVariable} {
				if err == nil || !strings.Contains(err.Error(), "--"+tc.flag) {
					t.Errorf("error %v does not name --%s", err, tc.flag)
				}
			}
		})
	}
}

func TestUnknownFeatureGatesAreAccepted(t *testing.T) {
	t.Run("unknown AWS gate", func(t *testing.T) {
		s, _, err := parse(
			t,
			map[string]string{"AWS_FEATURE_GATES": "Unheard=true,NodeClassCEL=true", "FEATURE_GATES": "Unheard=false"},
			"--cluster-name=shop",
		)
		if err != nil || !s.AWSGate(GateNodeClassCEL) || s.AWSGate("Other") {
			t.Errorf("error %v, gates %q", err, s.AWSFeatureGates)
		}
	})
}

// Flags are strict; an environment variable that cannot be read counts as not set, and is named.
func TestBooleans(t *testing.T) {
	for _, text := range []string{"1", "t", "yes", "True", ""} {
		if _, _, err := parse(t, nil, "--cluster-name=shop", "--isolated-vpc="+text); err == nil ||
			!strings.Contains(err.Error(), "isolated-vpc") {
			t.Errorf("--isolated-vpc=%s: error %v", text, err)
		}
	}
	if s, _, err := parse(t, nil, "--cluster-name=shop", "--isolated-vpc"); err != nil || !s.IsolatedVPC {
		t.Errorf("--isolated-vpc without a value: %v, error %v", s.IsolatedVPC, err)
	}
	s, unreadable, err := parse(t, map[string]string{"CLUSTER_NAME": "shop", "ISOLATED_VPC": "yes", "IGNORE_DRA_REQUESTS": "no"})
	if err != nil || s.IsolatedVPC || !s.IgnoreDRARequests || !slices.Equal(unreadable, []string{"ISOLATED_VPC", "IGNORE_DRA_REQUESTS"}) {
		t.Errorf("isolated %v, ignoring DRA %v, unreadable %v, error %v", s.IsolatedVPC, s.IgnoreDRARequests, unreadable, err)
	}
}
