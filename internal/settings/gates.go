package settings

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/spelling"
)

// Names of feature gates. All are off by default but ReservedCapacity.
const (
	GateReservedCapacity = "ReservedCapacity"
	GateStaticCapacity   = "StaticCapacity"
	GateNodeOverlay      = "NodeOverlay"
	GateCapacityBuffer   = "CapacityBuffer"
	GateNodeRepair       = "NodeRepair"
	GateSpotToSpot       = "SpotToSpotConsolidation"
	// GatePodDeletionCost lets ReplicaSets remove the pods of nodes that will be disrupted next.
	GatePodDeletionCost = "PodDeletionCostManagement"
	// GateTerminateFirstDrift and GateTerminateFirstRepair terminate nodes first with replacements that cannot come first.
	GateTerminateFirstDrift  = "TerminateFirstDrift"
	GateTerminateFirstRepair = "TerminateFirstRepair"
	// GateNodeLifecycleConditions reads and writes the conditions of Nodes about maintenance and drains (KEP-5683).
	GateNodeLifecycleConditions = "NodeLifecycleConditions"
)

// Feature gates of the AWS provider. They are off by default.
const (
	// GateNodeClassCEL is for expressions in kubelet settings.
	GateNodeClassCEL = "NodeClassCEL"
	// GateRebootForRepair lets node repair reboot an instance with a fault that a reboot may clear.
	GateRebootForRepair = "RebootForRepair"
	// GateDRANVIDIAGPU and GateDRAEFA launch instances for the devices that an instance type comes with, NVIDIA GPUs and
	// EFA devices, which pods request by resource claims.
	GateDRANVIDIAGPU = "DRANVIDIAGPU"
	GateDRAEFA       = "DRAEFA"
)

// gateSet is the names that one flag may have.
type gateSet struct {
	flag  string
	names []string
}

var (
	coreGates = gateSet{
		"feature-gates",
		[]string{
			GateReservedCapacity, GateStaticCapacity, GateNodeOverlay, GateCapacityBuffer, GateNodeRepair, GateSpotToSpot,
			GateTerminateFirstDrift, GateTerminateFirstRepair, GatePodDeletionCost, GateNodeLifecycleConditions,
		},
	}
	awsGates = gateSet{"aws-feature-gates", []string{GateNodeClassCEL, GateRebootForRepair, GateDRANVIDIAGPU, GateDRAEFA}}
)

// KnownGates are the feature gates of both flags.
func KnownGates() []string { return slices.Concat(coreGates.names, awsGates.names) }

// GateWarnings are about names that are no feature gates, with the name that was probably meant. They are not errors: Karpenter ignores
// unknown names, and its deployments must start unchanged.
func (s Settings) GateWarnings() []string {
	return append(coreGates.warnings(s.FeatureGates, awsGates), awsGates.warnings(s.AWSFeatureGates, coreGates)...)
}

// warnings are about the names in one flag; other is the set of the other flag.
func (g gateSet) warnings(text string, other gateSet) (out []string) {
	on, err := gates(text)
	if err != nil {
		return nil // Validate reports it
	}
	for _, name := range slices.Sorted(maps.Keys(on)) {
		switch similar := spelling.Nearest(name, slices.Sorted(slices.Values(g.names)), len(name)/3); {
		case slices.Contains(g.names, name):
		case slices.Contains(other.names, name):
			out = append(out, fmt.Sprintf("--%s: %s has no effect here: set it by --%s", g.flag, name, other.flag))
		case similar != "":
			out = append(out, fmt.Sprintf("--%s: %s is not known and has no effect: did you mean %s?", g.flag, name, similar))
		default:
			out = append(out, fmt.Sprintf("--%s: %s is not known and has no effect: known are %s", g.flag, name, strings.Join(g.names, ", ")))
		}
	}
	return out
}

// Gates are the values of --feature-gates, by name.
func (s Settings) Gates() (map[string]bool, error) { return gates(s.FeatureGates) }

func gates(text string) (map[string]bool, error) {
	out := map[string]bool{}
	for entry := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(entry) == "" {
			continue
		}
		name, value, found := strings.Cut(entry, "=")
		name = strings.TrimSpace(name)
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if !found || err != nil || name == "" {
			return nil, fmt.Errorf("%q is not Name=true or Name=false", entry)
		}
		out[name] = on
	}
	return out, nil
}

// AWSGate reports whether a feature gate of the AWS provider is on.
func (s Settings) AWSGate(name string) bool {
	on, _ := gates(s.AWSFeatureGates) // Validate has reported errors in them
	return on[name]
}

// Gate reports whether a feature gate is on.
func (s Settings) Gate(name string) bool {
	gates, _ := s.Gates() // Validate has reported errors in them
	on, set := gates[name]
	return on || !set && name == GateReservedCapacity
}
