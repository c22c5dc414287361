// Package settings is what an operator can configure: one struct, with defaults, read and validated in one place.
//
// Each setting is a flag and an environment variable of the same name in capitals; the flag wins. Names and
// defaults are Karpenter's, so that a deployment moves over as it is.
package settings

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Settings of the controller.
type Settings struct {
	ClusterName string
	// ClusterEndpoint is the URL that nodes reach the API server by; empty means the endpoint that EKS returns.
	ClusterEndpoint string
	// ClusterCABundle is base64; empty means the CA that the controller itself trusts.
	ClusterCABundle string
	// EKSControlPlane takes the Kubernetes version from EKS rather than from the API server.
	EKSControlPlane bool
	// IsolatedVPC means that the pricing API is out of reach.
	IsolatedVPC   bool
	DisableDryRun bool
	Planning
	InterruptionQueue     string
	EnableZonalShift      bool
	AMIRefreshInterval    time.Duration
	SubnetRefreshInterval time.Duration
	// SecurityGroupRefreshInterval is how long the lists of security groups are cached.
	SecurityGroupRefreshInterval time.Duration

	MetricsPort, HealthProbePort int
	// BindAddress is the IP address that all ports are opened on; empty means all interfaces, as kubelet's probes and
	// Prometheus need it in a pod.
	BindAddress string
	// MetricsSecure serves metrics by HTTPS, and only to clients that the API server authenticates and authorizes. MetricsCertDir has
	// tls.crt and tls.key for it; if it is empty, the certificate is self-signed.
	MetricsSecure   bool
	MetricsCertDir  string
	EnableProfiling bool
	// ConsolePort serves the console; 0 serves none. On a loopback BindAddress it is open to all users of the machine; on others it is
	// served by HTTPS, and only to clients that the API server authenticates and authorizes. ConsoleCertDir has tls.crt and tls.key for
	// it; if it is empty, the certificate is self-signed.
	ConsolePort             int
	ConsoleCertDir          string
	KubeClientQPS           float64
	KubeClientBurst         int
	DisableLeaderElection   bool
	LeaderElectionName      string
	LeaderElectionNamespace string
	// Shadow makes the controller plan beside another one, and write nothing but its report, into LeaderElectionNamespace.
	Shadow bool
	// MemoryLimit in bytes; the limit of the Go runtime is nine tenths of it. Negative means none.
	MemoryLimit int64
	LogLevel    string
	// LogOutputPaths are where logs go, LogErrorOutputPaths where errors of writing logs go: stdout, stderr and files, separated by
	// commas.
	LogOutputPaths, LogErrorOutputPaths string
	// DisableControllerWarmup makes a replica start its watches only once it is elected.
	DisableControllerWarmup bool
	// IgnoreDRARequests leaves pods with resource claims pending.
	IgnoreDRARequests bool

	BatchMaxDuration, BatchIdleDuration time.Duration
	FeatureGates                        string
	AWSFeatureGates                     string
	// ValidatePlans checks each plan by independent code before it is executed.
	ValidatePlans bool
	// PanicSnapshotDir is the directory for snapshots of clusters on which planning panicked; empty writes none.
	PanicSnapshotDir string
	// RecorderPath is the file of the recording of decisions; empty keeps it in memory. RecorderSize is how large it may become, such
	// as 256Mi.
	RecorderPath, RecorderSize string
	// MaxFailedReplacements is how many replacement nodes of a pool may fail before disruption of the pool pauses for their reason;
	// 0 never pauses.
	MaxFailedReplacements int
	// JoinGracePeriod is how long after its launch an instance may be without a node before the cause is diagnosed. Once the usual
	// time of a node class is known, that is used instead.
	JoinGracePeriod time.Duration
	// StartupTaintGracePeriod is how long a startup taint may stay, or a node be not Ready, before an event reports it and the node no
	// longer counts as in-flight capacity.
	StartupTaintGracePeriod time.Duration
	// RepairStaleTaints removes the taint of the cloud controller manager from nodes that it has initialized: a stale write has put the
	// taint back.
	RepairStaleTaints bool

	// DisableClusterStateObservability omits the metrics of each pod, and those of pools' limits and usage.
	DisableClusterStateObservability bool

	// LegacyNodeRepair makes node repair that of Karpenter 1.14: without budgets, replacements and a bound for the drain.
	LegacyNodeRepair bool

	// The following are accepted so that a deployment of Karpenter starts, and have no effect. The first has none in Karpenter either;
	// by the second, in millicores, Karpenter limits its concurrency.
	KarpenterService string
	CPURequests      int64
}

// Values of --preference-policy and --min-values-policy.
const (
	PreferencesRespect  = "Respect"
	PreferencesIgnore   = "Ignore"
	PreferencesPriced   = "Priced"
	MinValuesStrict     = "Strict"
	MinValuesBestEffort = "BestEffort"
)

// DefaultPreferenceCost is the default of --preference-cost. On 4,000 pods that prefer a zone and nodes apart, at EC2 prices,
// with three NodePools and three seeds, plans with 0.1 cost at most 1.8 % more than plans that ignore preferences. With 0.2 it
// is 5.6 %, and with 0.5 it is 11.1 %. With 0.2 pods keep at most 1 % more preferences than with 0.1.
const DefaultPreferenceCost = 0.1

// Planning settings are those that a plan depends on, whether it is executed or only printed.
type Planning struct {
	// VMMemoryOverheadPercent is the fraction (0.075 is 7.5 %) of an instance's memory that the hypervisor keeps.
	VMMemoryOverheadPercent           float64
	ReservedENIs                      int
	PreferencePolicy, MinValuesPolicy string
	// PreferenceCost is the share of a pod's own price up to which the policy Priced pays for its preferences; 0.1 is 10 %.
	PreferenceCost float64
	// SchedulerConfig is YAML or JSON: the configuration of the kube-scheduler that plans depend on.
	SchedulerConfig string
	// NodeOverheadCost is what each node costs in addition to its price, in $/h: licenses, agents.
	NodeOverheadCost float64
}

// Bind declares the flags on fs.
func (p *Planning) Bind(fs *pflag.FlagSet) {
	p.bind(fs, &env{getenv: func(string) string { return "" }})
}

func (p *Planning) bind(fs *pflag.FlagSet, e *env) {
	fs.Float64Var(
		&p.VMMemoryOverheadPercent,
		"vm-memory-overhead-percent",
		e.float("VM_MEMORY_OVERHEAD_PERCENT", 0.075),
		"fraction of an instance's memory that the hypervisor uses",
	)
	fs.IntVar(&p.ReservedENIs, "reserved-enis", e.integer("RESERVED_ENIS", 0), "network interfaces per node that pods cannot use")
	fs.StringVar(
		&p.PreferencePolicy,
		"preference-policy",
		e.text("PREFERENCE_POLICY", PreferencesRespect),
		"Respect or Ignore the preferences of pods, or Priced: keep them up to --preference-cost",
	)
	fs.Float64Var(
		&p.PreferenceCost,
		"preference-cost",
		e.float("PREFERENCE_COST", DefaultPreferenceCost),
		"with --preference-policy=Priced: the most that the preferences of a pod may cost, as a fraction of the pod's own price",
	)
	fs.StringVar(
		&p.MinValuesPolicy,
		"min-values-policy",
		e.text("MIN_VALUES_POLICY", MinValuesStrict),
		"Strict or BestEffort enforcement of minValues",
	)
	fs.StringVar(
		&p.SchedulerConfig,
		"scheduler-config",
		e.text("SCHEDULER_CONFIG", ""),
		"YAML or JSON with the scheduler's podTopologySpread.defaultConstraints",
	)
	fs.Float64Var(
		&p.NodeOverheadCost,
		"node-overhead-cost",
		e.float("NODE_OVERHEAD_COST", 0),
		"cost of each node per hour in addition to its price, in dollars, such as licenses and agents: plans minimize the sum",
	)
}

// Validate returns an error for every setting that is not valid.
func (p Planning) Validate() error {
	var errs []error
	for _, rule := range []struct {
		broken  bool
		message string
	}{
		{
			!(p.VMMemoryOverheadPercent >= 0 && p.VMMemoryOverheadPercent < 1),
			fmt.Sprintf("--vm-memory-overhead-percent %v is not a fraction from 0 to less than 1", p.VMMemoryOverheadPercent),
		},
		{
			p.NodeOverheadCost < 0 || math.IsInf(p.NodeOverheadCost, 0) || math.IsNaN(p.NodeOverheadCost),
			fmt.Sprintf("--node-overhead-cost %v is not an amount of dollars per hour", p.NodeOverheadCost),
		},
		{p.ReservedENIs < 0, fmt.Sprintf("--reserved-enis %d is negative", p.ReservedENIs)},
		{
			!slices.Contains([]string{PreferencesRespect, PreferencesIgnore, PreferencesPriced}, p.PreferencePolicy),
			fmt.Sprintf("--preference-policy %q is none of Respect, Ignore and Priced", p.PreferencePolicy),
		},
		{
			p.PreferenceCost < 0 || math.IsInf(p.PreferenceCost, 0) || math.IsNaN(p.PreferenceCost),
			fmt.Sprintf("--preference-cost %v is not a fraction of 0 or more", p.PreferenceCost),
		},
		{
			!slices.Contains([]string{MinValuesStrict, MinValuesBestEffort}, p.MinValuesPolicy),
			fmt.Sprintf("--min-values-policy %q is neither Strict nor BestEffort", p.MinValuesPolicy),
		},
	} {
		if rule.broken {
			errs = append(errs, errors.New(rule.message))
		}
	}
	return errors.Join(errs...)
}

// Bind declares the flags on fs, with the environment as their defaults. An environment variable that
// cannot be read as its type counts as not set, as it does for Karpenter; unreadable names them.
func (s *Settings) Bind(fs *pflag.FlagSet, getenv func(string) string) (unreadable []string) {
	e := env{getenv: getenv}
	fs.StringVar(&s.ClusterName, "cluster-name", e.text("CLUSTER_NAME", ""), "name of the EKS cluster (required)")
	fs.StringVar(
		&s.ClusterEndpoint,
		"cluster-endpoint",
		e.text("CLUSTER_ENDPOINT", ""),
		"URL of the API server for nodes; read from EKS if not set",
	)
	fs.StringVar(
		&s.ClusterCABundle,
		"cluster-ca-bundle",
		e.text("CLUSTER_CA_BUNDLE", ""),
		"base64 of the API server's CA for nodes; the controller's own if not set",
	)
	flagBool(
		fs,
		preset(&s.EKSControlPlane, e.boolean("EKS_CONTROL_PLANE", false)),
		"eks-control-plane",
		"read the Kubernetes version from EKS",
	)
	flagBool(
		fs,
		preset(&s.IsolatedVPC, e.boolean("ISOLATED_VPC", false)),
		"isolated-vpc",
		"do not call the pricing API, which has no VPC endpoint",
	)
	flagBool(
		fs,
		preset(&s.DisableDryRun, e.boolean("DISABLE_DRY_RUN", false)),
		"disable-dry-run",
		"do not validate node classes by dry runs",
	)
	s.Planning.bind(fs, &e)
	fs.StringVar(
		&s.InterruptionQueue,
		"interruption-queue",
		e.text("INTERRUPTION_QUEUE", ""),
		"name of the SQS queue with interruption events",
	)
	flagBool(
		fs,
		preset(&s.EnableZonalShift, e.boolean("ENABLE_ZONAL_SHIFT", false)),
		"enable-zonal-shift",
		"follow zonal shifts of the cluster",
	)
	fs.DurationVar(
		&s.AMIRefreshInterval,
		"ami-refresh-interval",
		e.duration("AMI_REFRESH_INTERVAL", time.Minute),
		"how long images are cached",
	)
	fs.DurationVar(
		&s.SubnetRefreshInterval,
		"subnet-refresh-interval",
		e.duration("SUBNET_REFRESH_INTERVAL", time.Minute),
		"how long subnets are cached",
	)
	fs.DurationVar(
		&s.SecurityGroupRefreshInterval,
		"security-group-refresh-interval",
		e.duration("SECURITY_GROUP_REFRESH_INTERVAL", time.Minute),
		"how long security groups are cached",
	)

	fs.IntVar(&s.MetricsPort, "metrics-port", e.integer("METRICS_PORT", 8080), "port of /metrics")
	flagBool(
		fs,
		preset(&s.MetricsSecure, e.boolean("METRICS_SECURE", false)),
		"metrics-secure",
		"serve /metrics by HTTPS, and only to clients that RBAC allows to get it",
	)
	fs.StringVar(
		&s.MetricsCertDir,
		"metrics-cert-dir",
		e.text("METRICS_CERT_DIR", ""),
		"directory with tls.crt and tls.key for --metrics-secure; self-signed if not set",
	)
	fs.IntVar(&s.HealthProbePort, "health-probe-port", e.integer("HEALTH_PROBE_PORT", 8081), "port of /healthz and /readyz")
	fs.StringVar(&s.BindAddress, "bind-address", e.text("BIND_ADDRESS", ""), "IP address of all ports; all interfaces if not set")
	fs.IntVar(&s.ConsolePort, "console-port", e.integer("CONSOLE_PORT", 0),
		"port of the console; 0 serves none. Beyond a loopback --bind-address, by HTTPS and only to users that RBAC allows to get /console")
	fs.StringVar(
		&s.ConsoleCertDir,
		"console-cert-dir",
		e.text("CONSOLE_CERT_DIR", ""),
		"directory with tls.crt and tls.key for --console-port; self-signed if not set",
	)
	flagBool(
		fs,
		preset(&s.EnableProfiling, e.boolean("ENABLE_PROFILING", false)),
		"enable-profiling",
		"serve /debug/pprof on the metrics port",
	)
	fs.Float64Var(&s.KubeClientQPS, "kube-client-qps", e.float("KUBE_CLIENT_QPS", 200), "requests per second to the API server")
	fs.IntVar(&s.KubeClientBurst, "kube-client-burst", e.integer("KUBE_CLIENT_BURST", 300), "burst of requests to the API server")
	flagBool(
		fs,
		preset(&s.DisableLeaderElection, e.boolean("DISABLE_LEADER_ELECTION", false)),
		"disable-leader-election",
		"run without leader election; for a single replica only",
	)
	fs.StringVar(
		&s.LeaderElectionName,
		"leader-election-name",
		e.text("LEADER_ELECTION_NAME", "karpenter-leader-election"),
		"name of the leader's lease",
	)
	fs.StringVar(
		&s.LeaderElectionNamespace,
		"leader-election-namespace",
		e.text("LEADER_ELECTION_NAMESPACE", ""),
		"namespace of the leader's lease, or of the report of --shadow; the pod's own if not set",
	)
	flagBool(
		fs,
		preset(&s.Shadow, e.boolean("SHADOW", false)),
		"shadow",
		"plan beside the controller that acts, change nothing, and report what would have been done: see dovetail shadow report",
	)
	fs.Int64Var(&s.MemoryLimit, "memory-limit", int64(e.integer("MEMORY_LIMIT", -1)), "memory limit of the container in bytes")
	fs.Int64Var(
		&s.CPURequests,
		"cpu-requests",
		int64(e.integer("CPU_REQUESTS", 1000)),
		"accepted, has no effect: CPU request of the container in millicores",
	)
	fs.StringVar(&s.LogLevel, "log-level", e.text("LOG_LEVEL", "info"), "debug, info or error")

	fs.DurationVar(
		&s.BatchMaxDuration,
		"batch-max-duration",
		e.duration("BATCH_MAX_DURATION", 10*time.Second),
		"longest time to wait for more pods before planning",
	)
	fs.DurationVar(
		&s.BatchIdleDuration,
		"batch-idle-duration",
		e.duration("BATCH_IDLE_DURATION", time.Second),
		"time without new pods after which planning begins",
	)
	flagBool(
		fs,
		preset(&s.ValidatePlans, e.boolean("VALIDATE_PLANS", false)),
		"validate-plans",
		"validate each plan before it is executed, and skip launches that break a rule",
	)
	fs.StringVar(&s.PanicSnapshotDir, "panic-snapshot-dir", e.text("PANIC_SNAPSHOT_DIR", "/tmp/dovetail-panics"),
		"directory for snapshots, without secrets, of the last clusters on which planning panicked; if empty, none is written")
	fs.StringVar(&s.RecorderPath, "recorder-path", e.text("RECORDER_PATH", ""),
		"file with the recording of decisions, without secrets, for dovetail recording and dovetail replay; if empty, it is in memory")
	fs.StringVar(&s.RecorderSize, "recorder-size", e.text("RECORDER_SIZE", "256Mi"),
		"how large the recording may become; the oldest decisions are dropped; in memory it takes 32Mi at most")
	fs.StringVar(
		&s.FeatureGates,
		"feature-gates",
		e.text("FEATURE_GATES", ""),
		"Name=bool,... ; unknown names are ignored, with a warning",
	)
	fs.IntVar(
		&s.MaxFailedReplacements,
		"max-failed-replacements",
		e.integer("MAX_FAILED_REPLACEMENTS", 2),
		"how many replacement nodes of a pool may fail before disruption of the pool pauses for their reason; 0 never pauses",
	)
	fs.DurationVar(&s.StartupTaintGracePeriod, "startup-taint-grace-period", e.duration("STARTUP_TAINT_GRACE_PERIOD", time.Minute),
		"how long a startup taint may stay, or a node be not Ready, before an event reports it")
	flagBool(
		fs,
		preset(&s.RepairStaleTaints, e.boolean("REPAIR_STALE_TAINTS", true)),
		"repair-stale-taints",
		"remove the taint of the cloud controller manager from nodes where a stale write has put it back",
	)
	fs.DurationVar(
		&s.JoinGracePeriod,
		"join-grace-period",
		e.duration("JOIN_GRACE_PERIOD", time.Minute),
		"how long after its launch an instance may be without a node before the cause is diagnosed; learned per node class later",
	)

	fs.StringVar(&s.KarpenterService, "karpenter-service", e.text("KARPENTER_SERVICE", ""), "accepted, has no effect")
	flagBool(
		fs,
		preset(&s.LegacyNodeRepair, e.boolean("LEGACY_NODE_REPAIR", false)),
		"legacy-node-repair",
		"with the feature gate NodeRepair, repair nodes as Karpenter 1.14 does: at once, without budgets and without replacing them first",
	)
	flagBool(
		fs,
		preset(&s.DisableControllerWarmup, e.boolean("DISABLE_CONTROLLER_WARMUP", true)),
		"disable-controller-warmup",
		"start watches only once this replica is elected",
	)
	flagBool(
		fs,
		preset(&s.DisableClusterStateObservability, e.boolean("DISABLE_CLUSTER_STATE_OBSERVABILITY", false)),
		"disable-cluster-state-observability",
		"omit the metrics of each pod, and those of node pools' limits and usage",
	)
	flagBool(
		fs,
		preset(&s.IgnoreDRARequests, e.boolean("IGNORE_DRA_REQUESTS", true)),
		"ignore-dra-requests",
		"leave pods with resource claims pending; if false, plan them with the devices that DRA drivers publish (needs Kubernetes 1.34)",
	)
	fs.StringVar(
		&s.LogOutputPaths,
		"log-output-paths",
		e.text("LOG_OUTPUT_PATHS", "stdout"),
		"where logs go: stdout, stderr or files, separated by commas",
	)
	fs.StringVar(
		&s.LogErrorOutputPaths,
		"log-error-output-paths",
		e.text("LOG_ERROR_OUTPUT_PATHS", "stderr"),
		"where errors of writing logs go: stdout, stderr or files, separated by commas",
	)
	fs.StringVar(
		&s.AWSFeatureGates,
		"aws-feature-gates",
		e.text("AWS_FEATURE_GATES", ""),
		"Name=bool,... of the AWS provider; unknown names are ignored, with a warning",
	)
	return e.unreadable
}

// Validate returns an error for every setting that is not valid.
func (s Settings) Validate() error {
	var errs []error
	refuse := func(bad bool, flag, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("--%s %s", flag, fmt.Sprintf(format, args...)))
		}
	}
	refuse(s.ClusterName == "", "cluster-name", "is required: set it, or CLUSTER_NAME, to the name of the EKS cluster")
	if s.ClusterEndpoint != "" {
		u, err := url.Parse(s.ClusterEndpoint)
		refuse(err != nil || !u.IsAbs() || u.Hostname() == "", "cluster-endpoint", "%q is not an absolute URL with a host", s.ClusterEndpoint)
	}
	_, err := base64.StdEncoding.DecodeString(s.ClusterCABundle)
	refuse(err != nil, "cluster-ca-bundle", "is not base64: %v", err)
	refuse(s.AMIRefreshInterval < time.Minute, "ami-refresh-interval", "%v is less than 1m", s.AMIRefreshInterval)
	refuse(s.SecurityGroupRefreshInterval < time.Minute, "security-group-refresh-interval", "%v is less than 1m",
		s.SecurityGroupRefreshInterval)
	refuse(s.SubnetRefreshInterval < time.Minute, "subnet-refresh-interval", "%v is less than 1m", s.SubnetRefreshInterval)
	refuse(
		math.IsNaN(s.KubeClientQPS) || math.IsInf(s.KubeClientQPS, 0),
		"kube-client-qps",
		"%v is not a number of requests per second",
		s.KubeClientQPS,
	)
	refuse(
		!slices.Contains([]string{"", "debug", "info", "error"}, s.LogLevel),
		"log-level",
		"%q is not one of debug, info, error",
		s.LogLevel,
	)
	refuse(s.BatchIdleDuration <= 0, "batch-idle-duration", "%v is not positive", s.BatchIdleDuration)
	refuse(
		s.BatchMaxDuration < s.BatchIdleDuration,
		"batch-max-duration",
		"%v is shorter than --batch-idle-duration %v",
		s.BatchMaxDuration,
		s.BatchIdleDuration,
	)
	size, err := s.RecorderBytes()
	refuse(err != nil || size < minRecorderSize, "recorder-size", "%q is not an amount of at least 1Mi, such as 256Mi", s.RecorderSize)
	refuse(s.JoinGracePeriod <= 0, "join-grace-period", "%v is not positive", s.JoinGracePeriod)
	refuse(s.MaxFailedReplacements < 0, "max-failed-replacements", "%d is negative", s.MaxFailedReplacements)
	refuse(s.StartupTaintGracePeriod <= 0, "startup-taint-grace-period", "%v is not positive", s.StartupTaintGracePeriod)
	refuse(!isPort(s.MetricsPort), "metrics-port", "%d is not a port", s.MetricsPort)
	refuse(s.MetricsCertDir != "" && !s.MetricsSecure, "metrics-cert-dir", "has no effect without --metrics-secure: set that, too")
	refuse(!isPort(s.HealthProbePort), "health-probe-port", "%d is not a port", s.HealthProbePort)
	refuse(s.MetricsPort == s.HealthProbePort && s.MetricsPort != 0, "health-probe-port", "%d is also --metrics-port", s.HealthProbePort)
	refuse(!isPort(s.ConsolePort), "console-port", "%d is not a port", s.ConsolePort)
	refuse(s.ConsolePort != 0 && (s.ConsolePort == s.MetricsPort || s.ConsolePort == s.HealthProbePort), "console-port",
		"%d is also --metrics-port or --health-probe-port", s.ConsolePort)
	refuse(s.ConsoleCertDir != "" && s.ConsolePort == 0, "console-cert-dir", "has no effect without --console-port: set that, too")
	refuse(s.BindAddress != "" && net.ParseIP(s.BindAddress) == nil, "bind-address", "%q is not an IP address", s.BindAddress)
	_, err = s.Gates()
	refuse(err != nil, "feature-gates", "%v", err)
	_, err = gates(s.AWSFeatureGates)
	refuse(err != nil, "aws-feature-gates", "%v", err)
	return errors.Join(append(errs, s.Planning.Validate())...)
}

// Loopback reports whether the ports are reached from this machine, or pod, only.
func (s Settings) Loopback() bool {
	ip := net.ParseIP(s.BindAddress)
	return ip != nil && ip.IsLoopback()
}

// isPort reports whether a port can be listened on; 0 chooses a free one.
func isPort(port int) bool { return port >= 0 && port <= 65535 }

// NominationWindow is how long a pod's nomination protects a node.
func (s Settings) NominationWindow() time.Duration {
	return max(2*s.BatchMaxDuration, 10*time.Second)
}

// env reads defaults from the environment.
type env struct {
	getenv     func(string) string
	unreadable []string
}

func (e *env) text(name, otherwise string) string {
	if v := e.getenv(name); v != "" {
		return v
	}
	return otherwise
}

func (e *env) boolean(name string, otherwise bool) bool {
	return read(e, name, otherwise, strconv.ParseBool)
}

func (e *env) integer(name string, otherwise int) int { return read(e, name, otherwise, strconv.Atoi) }

func (e *env) float(name string, otherwise float64) float64 {
	return read(e, name, otherwise, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
}

func (e *env) duration(name string, otherwise time.Duration) time.Duration {
	return read(e, name, otherwise, time.ParseDuration)
}

func read[T any](e *env, name string, otherwise T, parse func(string) (T, error)) T {
	text := e.getenv(name)
	if text == "" {
		return otherwise
	}
	v, err := parse(text)
	if err != nil {
		e.unreadable = append(e.unreadable, name)
		return otherwise
	}
	return v
}

// minRecorderSize is the smallest recording, in bytes: what one pass of a small cluster sees fits into an eighth of it.
const minRecorderSize = 1 << 20

// RecorderBytes is RecorderSize in bytes.
func (s Settings) RecorderBytes() (int64, error) {
	text, unit := cmp.Or(s.RecorderSize, "256Mi"), int64(1)
	for suffix, bytes := range map[string]int64{"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30} {
		if number, found := strings.CutSuffix(text, suffix); found {
			text, unit = number, bytes
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && (n < 0 || n > math.MaxInt64/unit) {
		err = strconv.ErrRange
	}
	return n * unit, err
}
