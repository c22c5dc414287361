package settings

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Bind declares the flags on fs.
func (p *Planning) Bind(fs *pflag.FlagSet) {
	p.bind(&binder{fs: fs, env: env{getenv: func(string) string { return "" }}})
}

func (p *Planning) bind(b *binder) {
	b.float(&p.VMMemoryOverheadPercent, "vm-memory-overhead-percent", 0.075, "fraction of an instance's memory that the hypervisor uses")
	b.integer(&p.ReservedENIs, "reserved-enis", 0, "network interfaces per node that pods cannot use")
	b.text(&p.PreferencePolicy, "preference-policy", PreferencesRespect,
		"Respect or Ignore the preferences of pods, or Priced: keep them up to --preference-cost")
	b.float(&p.PreferenceCost, "preference-cost", DefaultPreferenceCost,
		"with --preference-policy=Priced: the most that the preferences of a pod may cost, as a fraction of the pod's own price")
	b.text(&p.MinValuesPolicy, "min-values-policy", MinValuesStrict, "Strict or BestEffort enforcement of minValues")
	b.text(&p.SchedulerConfig, "scheduler-config", "", "YAML or JSON with what your scheduler is configured with: podTopologySpread.defaultConstraints; of profiles, by schedulerName, "+
		"nodeAffinity.addedAffinity, nodeResourcesFit.ignoredResources and ignoredResourceGroups")
	b.float(&p.NodeOverheadCost, "node-overhead-cost", 0,
		"cost of each node per hour in addition to its price, in dollars, such as licenses and agents: plans minimize the sum")
}

// Bind declares the flags on fs, with the environment as their defaults. An environment variable that
// cannot be read as its type counts as not set, as it does for Karpenter; unreadable names them.
func (s *Settings) Bind(fs *pflag.FlagSet, getenv func(string) string) (unreadable []string) {
	b := &binder{fs: fs, env: env{getenv: getenv}}
	for _, area := range []func(*binder){
		s.bindCluster, s.Planning.bind, s.bindAWS, s.bindServing, s.bindProcess, s.bindDecisions, s.bindNodes,
	} {
		area(b)
	}
	return b.unreadable
}

// bindCluster declares the settings that name the cluster.
func (s *Settings) bindCluster(b *binder) {
	b.text(&s.ClusterName, "cluster-name", "", "name of the EKS cluster (required)")
	b.text(&s.ClusterEndpoint, "cluster-endpoint", "", "URL of the API server for nodes; read from EKS if not set")
	b.text(&s.ClusterCABundle, "cluster-ca-bundle", "", "base64 of the API server's CA for nodes; the controller's own if not set")
	b.boolean(&s.EKSControlPlane, "eks-control-plane", false, "read the Kubernetes version from EKS")
}

// bindAWS declares the settings of calls to AWS, and of what is cached.
func (s *Settings) bindAWS(b *binder) {
	b.boolean(&s.IsolatedVPC, "isolated-vpc", false, "do not call the pricing API, which has no VPC endpoint")
	b.boolean(&s.DisableDryRun, "disable-dry-run", false, "do not validate node classes by dry runs")
	b.text(&s.InterruptionQueue, "interruption-queue", "", "name of the SQS queue with interruption events")
	b.boolean(&s.EnableZonalShift, "enable-zonal-shift", false, "follow zonal shifts of the cluster")
	b.duration(&s.AMIRefreshInterval, "ami-refresh-interval", time.Minute, "how long images are cached")
	b.duration(&s.SubnetRefreshInterval, "subnet-refresh-interval", time.Minute, "how long subnets are cached")
	b.duration(&s.SecurityGroupRefreshInterval, "security-group-refresh-interval", time.Minute, "how long security groups are cached")
	b.text(&s.AWSFeatureGates, "aws-feature-gates", "", "Name=bool,... of the AWS provider; unknown names are ignored, with a warning")
}

// bindServing declares the settings of the ports.
func (s *Settings) bindServing(b *binder) {
	b.integer(&s.MetricsPort, "metrics-port", 8080, "port of /metrics")
	b.boolean(&s.MetricsSecure, "metrics-secure", false, "serve /metrics by HTTPS, and only to clients that RBAC allows to get it")
	b.text(&s.MetricsCertDir, "metrics-cert-dir", "", "directory with tls.crt and tls.key for --metrics-secure; self-signed if not set")
	b.integer(&s.HealthProbePort, "health-probe-port", 8081, "port of /healthz and /readyz")
	b.text(&s.BindAddress, "bind-address", "", "IP address of all ports; all interfaces if not set")
	b.integer(&s.ConsolePort, "console-port", 0,
		"port of the console; 0 serves none. Beyond a loopback --bind-address, by HTTPS and only to users that RBAC allows to get /console")
	b.text(&s.ConsoleCertDir, "console-cert-dir", "", "directory with tls.crt and tls.key for --console-port; self-signed if not set")
	b.boolean(&s.EnableProfiling, "enable-profiling", false, "serve /debug/pprof on the metrics port")
}

// bindProcess declares the settings of the process: its requests to the API server, leader, memory and logs.
func (s *Settings) bindProcess(b *binder) {
	b.float(&s.KubeClientQPS, "kube-client-qps", 200, "requests per second to the API server")
	b.integer(&s.KubeClientBurst, "kube-client-burst", 300, "burst of requests to the API server")
	b.boolean(&s.DisableLeaderElection, "disable-leader-election", false, "run without leader election; for a single replica only")
	b.text(&s.LeaderElectionName, "leader-election-name", "karpenter-leader-election", "name of the leader's lease")
	b.text(&s.LeaderElectionNamespace, "leader-election-namespace", "",
		"namespace of the leader's lease, or of the report of --shadow; the pod's own if not set")
	b.boolean(&s.Shadow, "shadow", false,
		"plan beside the controller that acts, change nothing, and report what would have been done: see dovetail shadow report")
	b.integer64(&s.MemoryLimit, "memory-limit", -1, "memory limit of the container in bytes")
	b.integer64(&s.CPURequests, "cpu-requests", 1000, "accepted, has no effect: CPU request of the container in millicores")
	b.text(&s.LogLevel, "log-level", "info", "debug, info or error")
	b.boolean(&s.DisableControllerWarmup, "disable-controller-warmup", true, "start watches only once this replica is elected")
	b.text(&s.LogOutputPaths, "log-output-paths", "stdout", "where logs go: stdout, stderr or files, separated by commas")
	b.text(&s.LogErrorOutputPaths, "log-error-output-paths", "stderr",
		"where errors of writing logs go: stdout, stderr or files, separated by commas")
	b.text(&s.KarpenterService, "karpenter-service", "", "accepted, has no effect")
}

// bindDecisions declares the settings of batches, plans and the recording.
func (s *Settings) bindDecisions(b *binder) {
	b.duration(&s.BatchMaxDuration, "batch-max-duration", 10*time.Second, "longest time to wait for more pods before planning")
	b.duration(&s.BatchIdleDuration, "batch-idle-duration", time.Second, "time without new pods after which planning begins")
	b.boolean(&s.ValidatePlans, "validate-plans", false, "validate each plan before it is executed, and skip launches that break a rule")
	b.text(&s.PanicSnapshotDir, "panic-snapshot-dir", "/tmp/dovetail-panics",
		"directory for snapshots, without secrets, of the last clusters on which planning panicked; if empty, none is written")
	b.text(&s.RecorderPath, "recorder-path", "",
		"file with the recording of decisions, without secrets, for dovetail recording and dovetail replay; if empty, it is in memory")
	b.text(&s.RecorderSize, "recorder-size", "256Mi",
		"how large the recording may become; the oldest decisions are dropped; in memory it takes 32Mi at most")
	b.text(&s.FeatureGates, "feature-gates", "", "Name=bool,... ; unknown names are ignored, with a warning")
	b.boolean(&s.DisableClusterStateObservability, "disable-cluster-state-observability", false,
		"omit the metrics of each pod, and those of node pools' limits and usage")
	b.boolean(&s.IgnoreDRARequests, "ignore-dra-requests", true,
		"leave pods with resource claims pending; if false, plan them with the devices that DRA drivers publish (needs Kubernetes 1.34)")
}

// bindNodes declares the settings of nodes that are launched, and those that replace others.
func (s *Settings) bindNodes(b *binder) {
	b.integer(&s.MaxFailedReplacements, "max-failed-replacements", 2,
		"how many replacement nodes of a pool may fail before disruption of the pool pauses for their reason; 0 never pauses")
	b.text(&s.BlastRadius, "blast-radius", "",
		"KIND=SHARE%,... : how much of the capacity of a NodePool, and of the cluster, is deleted in an hour for reasons of a kind (planned, fault, "+
			"expired) before deletions pause until `dovetail resume`; planned=200%,fault=50%,expired=400% if not set; off never pauses")
	b.text(&s.MaxForcedExpirations, "max-forced-expirations", "10%",
		"how many expired nodes of a NodePool with the annotation dovetail.sh/expiration are deleted in a minute, whatever its budgets allow: a "+
			"number, or a share of its nodes; 0 for no limit")
	b.boolean(&s.SurgeDrain, "surge-drain", false,
		"restart Deployments with the annotation dovetail.sh/drain on another node before the node of their only pod goes; needs the right to "+
			"patch Deployments")
	b.duration(&s.SurgeTimeout, "surge-timeout", 10*time.Minute,
		"with --surge-drain: how long a restart, or the rollout before it, may take before the pod is evicted")
	b.duration(&s.StartupTaintGracePeriod, "startup-taint-grace-period", time.Minute,
		"how long a startup taint may stay, or a node be not Ready, before an event reports it")
	b.boolean(&s.RepairStaleTaints, "repair-stale-taints", true,
		"remove the taint of the cloud controller manager from nodes where a stale write has put it back")
	b.duration(&s.JoinGracePeriod, "join-grace-period", time.Minute,
		"how long after its launch an instance may be without a node before the cause is diagnosed; learned per node class later")
	b.boolean(&s.LegacyNodeRepair, "legacy-node-repair", false,
		"with the feature gate NodeRepair, repair nodes as Karpenter 1.14 does: at once, without budgets and without replacing them first")
}

// binder declares settings: each is a flag, and an environment variable of the same name in capitals that sets its default.
type binder struct {
	fs *pflag.FlagSet
	env
}

// variableOf returns the name of the environment variable of a flag.
func variableOf(flag string) string { return strings.ToUpper(strings.ReplaceAll(flag, "-", "_")) }

func (b *binder) text(p *string, flag, standard, usage string) {
	b.fs.StringVar(p, flag, b.env.text(variableOf(flag), standard), usage)
}

func (b *binder) boolean(p *bool, flag string, standard bool, usage string) {
	*p = b.env.boolean(variableOf(flag), standard)
	flagBool(b.fs, p, flag, usage)
}

func (b *binder) integer(p *int, flag string, standard int, usage string) {
	b.fs.IntVar(p, flag, b.env.integer(variableOf(flag), standard), usage)
}

func (b *binder) integer64(p *int64, flag string, standard int, usage string) {
	b.fs.Int64Var(p, flag, int64(b.env.integer(variableOf(flag), standard)), usage)
}

func (b *binder) float(p *float64, flag string, standard float64, usage string) {
	b.fs.Float64Var(p, flag, b.env.float(variableOf(flag), standard), usage)
}

func (b *binder) duration(p *time.Duration, flag string, standard time.Duration, usage string) {
	b.fs.DurationVar(p, flag, b.env.duration(variableOf(flag), standard), usage)
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
