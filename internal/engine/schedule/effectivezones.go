package schedule

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
)

// effectiveZones counts the pending pods by the zone that their requirements leave them, before anything is scheduled.
// Preferences do not count, since they would be dropped.
func effectiveZones(queue []*queuedPod) map[string]int {
	out := map[string]int{}
	zones := map[*podclass.Constraints]string{}
	var last *podclass.Constraints // equal pods are adjacent in the queue
	var zone string
	for _, q := range queue {
		k := q.class.Constraints
		if len(k.Invalid()) > 0 || q.pod.Status.Phase != corev1.PodPending {
			continue
		}
		if k != last {
			known := false
			if zone, known = zones[k]; !known {
				zone = k.EffectiveZone()
				zones[k] = zone
			}
			last = k
		}
		out[zone]++
	}
	return out
}
