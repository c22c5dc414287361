package v1

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// AnnotationDrain states how pods leave a Node: on a NodePool for the pods of its Nodes, on a pod, by the pod template of its owner, for
	// that pod, on a Deployment for its pods. Its value is a list of DrainModes with commas. Without it, pods leave as they do with Karpenter.
	AnnotationDrain = "dovetail.sh/drain"
	// AnnotationExpectedDuration, on a pod that completes by itself, is how long it runs from its start on, such as 20m. A drain waits for a
	// pod that is almost done.
	AnnotationExpectedDuration = "dovetail.sh/expected-duration"
)

// DrainMode is one way in which pods leave a Node.
type DrainMode string

// The modes.
const (
	// DrainOrdered, on a pod, has the pods of one ReplicaSet or StatefulSet leave one after the other: each waits until the others are Ready.
	DrainOrdered DrainMode = "Ordered"
	// DrainSurge, on a pod or a Deployment, has the only replica of the Deployment restarted on another Node before it leaves its own.
	DrainSurge DrainMode = "Surge"
	// DrainSurgeSingletons, on a NodePool, does the same for all Deployments with one replica.
	DrainSurgeSingletons DrainMode = "SurgeSingletons"
)

// DrainModes are those that an annotation lists.
type DrainModes []DrainMode

// Has reports whether the mode is one of them.
func (m DrainModes) Has(mode DrainMode) bool { return slices.Contains(m, mode) }

// Drain parses the annotation AnnotationDrain of a NodePool. An error names it: then it has no effect.
func (in *NodePool) Drain() (DrainModes, error) {
	return parseDrain(in.Annotations, DrainSurgeSingletons)
}

// WorkloadDrain parses the annotation AnnotationDrain of a pod or a Deployment, as NodePool.Drain does.
func WorkloadDrain(annotations map[string]string) (DrainModes, error) {
	return parseDrain(annotations, DrainOrdered, DrainSurge)
}

// parseDrain parses the annotation; nothing of it counts if one mode is not known.
func parseDrain(annotations map[string]string, known ...DrainMode) (out DrainModes, err error) {
	text, ok := annotations[AnnotationDrain]
	if !ok {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		mode := DrainMode(strings.TrimSpace(part))
		if !slices.Contains(known, mode) {
			return nil, fmt.Errorf("annotation %s: %q is none of %v", AnnotationDrain, mode, known)
		}
		out = append(out, mode)
	}
	return out, nil
}

// ExpectedDuration parses the annotation AnnotationExpectedDuration of a pod; 0 without it. An error names it.
func ExpectedDuration(annotations map[string]string) (time.Duration, error) {
	text, ok := annotations[AnnotationExpectedDuration]
	if !ok {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("annotation %s: %q is not a duration, such as 20m", AnnotationExpectedDuration, text)
	}
	return d, nil
}
