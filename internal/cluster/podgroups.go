package cluster

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// PodGroups are the PodGroups of an API server that serves them.
type PodGroups struct {
	Groups []*schedulingv1beta1.PodGroup
}

// readPodGroups reads the PodGroups, where the API server serves them.
func (s *State) readPodGroups(ctx context.Context, o *Objects) error {
	if s.cfg.PodGroups == nil {
		return nil
	}
	if served, err := s.cfg.PodGroups.Served(ctx); err != nil || !served {
		return err
	}
	var groups schedulingv1beta1.PodGroupList
	if err := s.listCached(ctx, &groups); err != nil {
		return err
	}
	o.PodGroups = &PodGroups{Groups: pointers(groups.Items)}
	return nil
}

// arrivingTime sets how long after its creation kube-scheduler is expected to try a pod. One that it has not mentioned by then is held, by
// its PodGroup or by a claim, or no scheduler takes it.
const arrivingTime = time.Minute

// isArriving reports whether kube-scheduler is about to try the pod for the first time, and so needs its room.
func (w *snapshotBuilder) isArriving(pod *corev1.Pod) bool {
	created := pod.CreationTimestamp.Time
	return snapshot.Arriving(pod) && (created.IsZero() || w.facts.Now.Sub(created) <= arrivingTime)
}

// addPodGroups adds the groups that pods name. Pods that kube-scheduler has not mentioned are planned with a group that it has tried, and
// need no room while it holds their group.
func (w *snapshotBuilder) addPodGroups() {
	if w.PodGroups == nil {
		return
	}
	members := map[types.NamespacedName][]*corev1.Pod{}
	for _, pod := range w.Pods {
		if name, in := snapshot.PodGroupOf(pod); in {
			members[name] = append(members[name], pod)
		}
	}
	if len(members) == 0 {
		return
	}
	objects := make(map[types.NamespacedName]*schedulingv1beta1.PodGroup, len(w.PodGroups.Groups))
	for _, g := range w.PodGroups.Groups {
		objects[client.ObjectKeyFromObject(g)] = g
	}
	for name, pods := range members {
		slices.SortFunc(pods, byNamespacedName)
		w.snap.PodGroups = append(w.snap.PodGroups, snapshot.PodGroup{
			Namespace: name.Namespace, Name: name.Name, Object: objects[name], Members: pods,
		})
	}
	slices.SortFunc(w.snap.PodGroups, func(a, b snapshot.PodGroup) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	w.sortMembers()
}

// sortMembers decides which members without a word of kube-scheduler are planned. One that is held is, too, once it is not new: the plan
// reports why it waits.
func (w *snapshotBuilder) sortMembers() {
	groups := snapshot.ReadGroups(w.snap)
	planned := map[types.UID]bool{}
	// Without a Node, kube-scheduler fails for each group before it tries a pod: see why groups are held.
	empty := !slices.ContainsFunc(w.snap.Nodes, func(n snapshot.Node) bool { return n.Named() })
	for _, g := range w.snap.PodGroups {
		for _, pod := range g.Members {
			of := groups.Of(pod)
			if snapshot.Arriving(pod) && (of.Held == nil && of.Tried || of.Held != nil && !w.isArriving(pod)) ||
				empty && snapshot.FailsToBind(pod) && of.Held == nil {
				planned[pod.UID] = true
				w.snap.Pods = append(w.snap.Pods, pod)
			}
		}
	}
	w.snap.Arriving = slices.DeleteFunc(w.snap.Arriving, func(pod *corev1.Pod) bool {
		g := groups.Of(pod)
		return planned[pod.UID] || g != nil && g.Held != nil
	})
}

// keepGroupNodes has the nodes that were launched for pods of a gang settle together, and protects them until then: kube-scheduler binds
// none of the pods before the last of the nodes is ready. Each node alone would be empty, and would count as one that its pods cannot use.
func (w *snapshotBuilder) keepGroupNodes() {
	for _, g := range snapshot.ReadGroups(w.snap).All() {
		if !g.Gang || g.Running {
			continue
		}
		nodes := w.nodesOfGroup(g)
		var until time.Time
		for _, n := range nodes {
			if n.Initialized {
				until = latest(until, n.SettledAt)
			} else {
				until = latest(until, w.facts.Now.Add(w.facts.NominationWindow))
			}
		}
		for _, n := range nodes {
			if n.NominatedUntil = latest(n.NominatedUntil, until); n.Initialized {
				n.SettledAt = until
			}
		}
	}
}

// nodesOfGroup are the nodes that stay and that were launched for pods of the group that still wait for one.
func (w *snapshotBuilder) nodesOfGroup(g *snapshot.Group) (out []*snapshot.Node) {
	waiting := map[string]bool{}
	for _, pod := range w.snap.Pods {
		if name, in := snapshot.PodGroupOf(pod); in && name.Namespace == g.Namespace && name.Name == g.Name && pod.Spec.NodeName == "" {
			waiting[string(pod.UID)] = true
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		if n.Deleting || n.LaunchedFor == "" {
			continue
		}
		for uid := range strings.SplitSeq(n.LaunchedFor, ",") {
			if waiting[uid] {
				out = append(out, n)
				break
			}
		}
	}
	return out
}
