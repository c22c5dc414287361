package settings

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func parse(t *testing.T, env map[string]string, args ...string) (Settings, []string, error) {
	t.Helper()
	var s Settings
	fs := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	unreadable := s.Bind(fs, func(name string) string { return env[name] })
	if err := fs.Parse(args); err != nil {
		return s, unreadable, err
	}
	return s, unreadable, s.Validate()
}

func TestDefaults(t *testing.T) {
	s, _, err := parse(t, nil, "--cluster-name", "shop")
	if err != nil {
		t.Fatal(err)
	}
	if s.BatchIdleDuration != time.Second || s.BatchMaxDuration != 10*time.Second || s.VMMemoryOverheadPercent != 0.075 ||
		s.PreferencePolicy != "Respect" || s.MinValuesPolicy != "Strict" || s.LeaderElectionName != "karpenter-leader-election" ||
		s.MetricsPort != 8080 || s.HealthProbePort != 8081 || s.KubeClientQPS != 200 || s.KubeClientBurst != 300 {
		t.Errorf("defaults: %+v", s)
	}
	if got := s.NominationWindow(); got != 20*time.Second {
		t.Errorf("nomination window %v, want 20s", got)
	}
}

func TestFlagBeatsEnvironment(t *testing.T) {
	s, _, err := parse(t, map[string]string{"CLUSTER_NAME": "env", "BATCH_IDLE_DURATION": "2s"}, "--cluster-name", "flag")
	if err != nil {
		t.Fatal(err)
	}
	if s.ClusterName != "flag" || s.BatchIdleDuration != 2*time.Second {
		t.Errorf("cluster name %q, idle %v; want flag, 2s", s.ClusterName, s.BatchIdleDuration)
	}
}

func TestUnreadableEnvironmentCountsAsNotSet(t *testing.T) {
	s, unreadable, err := parse(t, map[string]string{"CLUSTER_NAME": "shop", "BATCH_MAX_DURATION": "soon", "RESERVED_ENIS": "one"})
	if err != nil {
		t.Fatal(err)
	}
	if s.BatchMaxDuration != 10*time.Second || s.ReservedENIs != 0 {
		t.Errorf("max %v, enis %d; want the defaults", s.BatchMaxDuration, s.ReservedENIs)
	}
	if !slices.Equal(unreadable, []string{"RESERVED_ENIS", "BATCH_MAX_DURATION"}) {
		t.Errorf("unreadable = %v", unreadable)
	}
}

func TestRefusedSettings(t *testing.T) {
	tests := []struct {
		name  string
		args  []string
		names string
	}{
		{"no cluster name", nil, "--cluster-name"},
		{"relative endpoint", []string{"--cluster-name=a", "--cluster-endpoint=example.com"}, "--cluster-endpoint"},
		{"CA not base64", []string{"--cluster-name=a", "--cluster-ca-bundle=***"}, "--cluster-ca-bundle"},
		{"negative memory overhead", []string{"--cluster-name=a", "--vm-memory-overhead-percent=-0.1"}, "--vm-memory-overhead-percent"},
		{"memory overhead in percent", []string{"--cluster-name=a", "--vm-memory-overhead-percent=7.5"}, "--vm-memory-overhead-percent"},
		{
			"memory overhead that is no number",
			[]string{"--cluster-name=a", "--vm-memory-overhead-percent=NaN"},
			"--vm-memory-overhead-percent NaN",
		},
		{
			"memory overhead without end",
			[]string{"--cluster-name=a", "--vm-memory-overhead-percent=+Inf"},
			"--vm-memory-overhead-percent +Inf",
		},
		{"memory overhead of all", []string{"--cluster-name=a", "--vm-memory-overhead-percent=1"}, "--vm-memory-overhead-percent 1"},
		{"requests that are no number", []string{"--cluster-name=a", "--kube-client-qps=NaN"}, "--kube-client-qps NaN"},
		{"a gate without a name", []string{"--cluster-name=a", "--feature-gates==true"}, "--feature-gates"},
		{"no such port", []string{"--cluster-name=a", "--metrics-port=65536"}, "--metrics-port"},
		{"one port for two", []string{"--cluster-name=a", "--metrics-port=8081"}, "--health-probe-port"},
		{"a certificate for metrics without TLS", []string{"--cluster-name=a", "--metrics-cert-dir=/certs"}, "--metrics-cert-dir"},
		{"negative ENIs", []string{"--cluster-name=a", "--reserved-enis=-1"}, "--reserved-enis"},
		{"images refreshed too often", []string{"--cluster-name=a", "--ami-refresh-interval=59s"}, "--ami-refresh-interval"},
		{"subnets refreshed too often", []string{"--cluster-name=a", "--subnet-refresh-interval=1s"}, "--subnet-refresh-interval"},
		{"negative cost of a node", []string{"--cluster-name=a", "--node-overhead-cost=-1"}, "--node-overhead-cost"},
		{"negative number of failures", []string{"--cluster-name=a", "--max-failed-replacements=-1"}, "--max-failed-replacements"},
		{"unknown policy", []string{"--cluster-name=a", "--preference-policy=Maybe"}, "--preference-policy"},
		{"unknown minValues policy", []string{"--cluster-name=a", "--min-values-policy=Maybe"}, "--min-values-policy"},
		{"unknown log level", []string{"--cluster-name=a", "--log-level=loud"}, "--log-level"},
		{"window shorter than its idle time", []string{"--cluster-name=a", "--batch-max-duration=500ms"}, "--batch-max-duration"},
		{"gate without value", []string{"--cluster-name=a", "--feature-gates=NodeRepair"}, "--feature-gates"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := parse(t, nil, tt.args...)
			if err == nil || !strings.Contains(err.Error(), tt.names) {
				t.Errorf("error %v, want one that names %s", err, tt.names)
			}
		})
	}
}

func TestGates(t *testing.T) {
	s, _, err := parse(t, map[string]string{"FEATURE_GATES": "StaticCapacity=true, Unheard=true"}, "--cluster-name=a")
	if err != nil {
		t.Fatal(err)
	}
	if !s.Gate(GateStaticCapacity) || !s.Gate(GateReservedCapacity) || s.Gate("NodeRepair") {
		t.Error("want StaticCapacity and, by default, ReservedCapacity on, and nothing else")
	}
	if s.AWSGate(GateNodeClassCEL) {
		t.Error("want the gates of AWS off by default")
	}
	if s.AWSFeatureGates = "NodeClassCEL=true, Unheard=true"; !s.AWSGate(GateNodeClassCEL) || s.Validate() != nil {
		t.Errorf("want NodeClassCEL on; %v", s.Validate())
	}
	if s.AWSFeatureGates = "NodeClassCEL"; s.AWSGate(GateNodeClassCEL) || s.Validate() == nil {
		t.Error("want what is no gate refused")
	}
	s.AWSFeatureGates = ""
	if s.FeatureGates = "ReservedCapacity=false"; s.Gate(GateReservedCapacity) || s.Gate(GateStaticCapacity) {
		t.Error("want everything off")
	}
}

func TestFeatureGatesWithoutEffectAreNamedAtTheStart(t *testing.T) {
	for _, tt := range []struct{ name, core, aws, want string }{
		{"none", "", "", ""},
		{"known", "NodeRepair=true,SpotToSpotConsolidation=false", "NodeClassCEL=true", ""},
		{
			"misspelt", "SpotToSpotConsolidaton=true", "",
			"--feature-gates: SpotToSpotConsolidaton is not known and has no effect: did you mean SpotToSpotConsolidation?",
		},
		{"of another case", "noderepair=false", "", "--feature-gates: noderepair is not known and has no effect: did you mean NodeRepair?"},
		{"unheard of", "Drift=true", "", "--feature-gates: Drift is not known and has no effect: known are ReservedCapacity, StaticCapacity, "},
		{"Karpenter's, off as its chart says", "PodDeletionCostManagement=false", "DRAEFA=false", ""},
		{"at the wrong flag", "NodeClassCEL=true", "", "--feature-gates: NodeClassCEL has no effect here: set it by --aws-feature-gates"},
		{"of AWS", "", "NodeClasCEL=true", "--aws-feature-gates: NodeClasCEL is not known and has no effect: did you mean NodeClassCEL?"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _, err := parse(t, map[string]string{"FEATURE_GATES": tt.core, "AWS_FEATURE_GATES": tt.aws}, "--cluster-name=a")
			if err != nil {
				t.Fatalf("%v: an unknown gate must not keep the controller from starting", err)
			}
			if got := strings.Join(s.GateWarnings(), "\n"); !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("warnings %q, want %q", got, tt.want)
			}
		})
	}
}
