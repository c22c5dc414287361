package schedule

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/existing"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// claimUsers finds the users of claims that only one pod can use: a running pod, else the pod that a node was launched
// for and that can still use it, else the first in the queue.
func (sv *solver) claimUsers(queue []*queuedPod) volume.Users {
	if !slices.ContainsFunc(queue, func(q *queuedPod) bool { return len(q.class.Exclusive()) > 0 }) {
		return nil
	}
	out, placed := volume.Users{}, make(map[types.UID]bool, len(queue))
	for _, q := range queue {
		placed[q.pod.UID] = true
	}
	promised := map[types.UID]*existing.Node{}
	for _, n := range sv.nodes.All() {
		if !n.Exists() {
			continue
		}
		for _, uid := range n.Source().Nominated {
			promised[uid] = n
		}
		for _, pod := range n.Source().Pods {
			if placed[pod.UID] || snapshot.Terminal(pod) || !volume.HasClaims(pod) {
				continue
			}
			out.Take(pod, volume.Exclusive(volume.Of(sv.s, pod)))
		}
	}
	for _, which := range []func(*queuedPod) bool{
		func(q *queuedPod) bool { return q.pod.Spec.NodeName != "" },
		func(q *queuedPod) bool {
			return promised[q.pod.UID] != nil && sv.keepsPromise(promised[q.pod.UID], q)
		},
		func(*queuedPod) bool { return true },
	} {
		for _, q := range queue {
			taken := slices.ContainsFunc(q.class.Exclusive(), func(key types.NamespacedName) bool { return out[key] != nil && out[key] != q.pod })
			if taken || !which(q) {
				continue
			}
			out.Take(q.pod, q.class.Exclusive())
		}
	}
	return out
}

// keepsPromise reports whether the node takes a pod that was nominated to it: see applyNominations. Devices do not count,
// since it is queried before they are.
func (sv *solver) keepsPromise(n *existing.Node, q *queuedPod) bool {
	return !n.Source().Deleting && (n.Source().KeepsNominated(q.pod.UID) || len(q.class.Devices()) > 0 || sv.stillFits(n, q.class))
}

// forgetSharers removes pending pods that are unplaceable or invalid from the users of claims: a pod that shares a
// claim with these alone is not bound by it. A pod that a claim in flight was launched for keeps it, whatever it requires
// now, and its volumes come up there.
func (sv *solver) forgetSharers(queue []*queuedPod) {
	if !slices.ContainsFunc(queue, (*queuedPod).cannotRun) {
		return
	}
	promised := map[types.UID]bool{}
	for _, n := range sv.nodes.All() {
		for _, uid := range n.Source().Nominated {
			promised[uid] = promised[uid] || !n.Source().Deleting && n.Source().KeepsNominated(uid)
		}
	}
	for _, q := range queue {
		if sv.pending[q.pod.UID] && q.cannotRun() && (len(q.class.Invalid()) > 0 || !promised[q.pod.UID]) {
			sv.volumes.Forget(q.pod)
		}
	}
}

// cannotRun reports whether the pod is unplaceable or invalid.
func (q *queuedPod) cannotRun() bool { return q.class.unplaceable() || len(q.class.Invalid()) > 0 }
