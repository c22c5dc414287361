package v1

import (
	"fmt"
	"time"
)

// AnnotationReplaceDeferredResize on a NodePool is a duration, such as 10m. A Node of the pool on which the kubelet has deferred the resize
// of a pod for so long, since the Node has no room for it, is replaced as drifted: within budgets, by Nodes with room. Without it, no Node
// is replaced for that.
const AnnotationReplaceDeferredResize = "dovetail.sh/replace-deferred-resize-after"

// MinDeferredResize is the shortest time for AnnotationReplaceDeferredResize: the kubelet retries a deferred resize whenever a pod leaves
// the Node, and every few minutes.
const MinDeferredResize = 5 * time.Minute

// ReplaceDeferredResize parses the annotation AnnotationReplaceDeferredResize; 0 without it. An error names it.
func (in *NodePool) ReplaceDeferredResize() (time.Duration, error) {
	text, ok := in.Annotations[AnnotationReplaceDeferredResize]
	if !ok {
		return 0, nil
	}
	after, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("annotation %s: %q is not a duration, such as 10m", AnnotationReplaceDeferredResize, text)
	case after < MinDeferredResize:
		return 0, fmt.Errorf("annotation %s: %s is shorter than %v", AnnotationReplaceDeferredResize, text, MinDeferredResize)
	}
	return after, nil
}
