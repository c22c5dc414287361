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
	// SecurityGroupRefreshInterval states how long the lists of security groups are cached.
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
	// ConsolePort serves the console; 0 serves none. On a loopback BindAddress it is open to all users of the computer; on others it is
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
	// LogOutputPaths states where logs go, LogErrorOutputPaths where errors of writing logs go: stdout, stderr and files, separated by
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
	// RecorderPath is the file of the recording of decisions; empty keeps it in memory. RecorderSize states how large it may become, such
	// as 256Mi.
	RecorderPath, RecorderSize string
	// MaxFailedReplacements limits how many replacement nodes of a pool may fail before disruption of the pool pauses for their reason;
	// 0 never pauses.
	MaxFailedReplacements int
	// JoinGracePeriod states how long after its launch an instance may be without a node before the cause is diagnosed. Once the usual
	// time of a node class is known, that is used instead.
	JoinGracePeriod time.Duration
	// BlastRadius limits how much is deleted, by kind of reason: see destroy.ParseLimits.
	BlastRadius string
	// MaxForcedExpirations limits how many expired nodes of a pool with the annotation dovetail.sh/expiration are deleted in a minute: a
	// number, or a share of the pool.
	MaxForcedExpirations string
	// SurgeDrain permits to restart Deployments with the annotation dovetail.sh/drain before the node of their only pod goes. SurgeTimeout
	// states how long a restart may take.
	SurgeDrain   bool
	SurgeTimeout time.Duration
	// StartupTaintGracePeriod states how long a startup taint may stay, or a node be not Ready, before an event reports it and the node no
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
	// NodeOverheadCost holds what each node costs in addition to its price, in $/h: licenses, agents.
	NodeOverheadCost float64
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

// NominationWindow returns how long a pod's nomination protects a node.
func (s Settings) NominationWindow() time.Duration {
	return max(2*s.BatchMaxDuration, 10*time.Second)
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
