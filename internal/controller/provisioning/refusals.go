package provisioning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/patch"
	"github.com/dovetail-k8s/dovetail/internal/engine/refusal"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// codePodsRefused is the rejection code of pods for which no other node is launched, since nodes were launched for them in vain.
	codePodsRefused schedule.Code = karpv1.ConditionPodsRefused
	// maxReplans limits how often a pass plans again without pods that its plan has another node for: the room that they leave may change
	// the nodes of others. After that, launches for such pods are dropped.
	maxReplans = 3
	// keepRefused sets how long a node that does not run its pods is kept for them, though it is empty: as long as a fault that finishes by
	// itself usually takes, such as an agent that is slow to remove its taint, or a webhook that is down.
	keepRefused = 10 * time.Minute
	// refusedEventWindow is the dedupe window of the event on a pool.
	refusedEventWindow = 15 * time.Minute
)

// refusals describes what a pass knows of nodes that were launched for pods in vain.
type refusals struct {
	p    *Provisioner
	snap *snapshot.Snapshot
	// pools and histories are by the name of the pool. changed are the histories that are not written yet.
	pools     map[string]*karpv1.NodePool
	histories map[string]*refusal.History
	changed   map[string]bool
	classes   refusal.Classes
	// verdicts are by class.
	verdicts map[string]refusal.Verdict
	// failed are pools with a history that could not be written. undecided are classes with a node that is too young to report.
	failed, undecided map[string]bool
	// nominated are the pods that a claim in flight, or a node that has just come up, is for: the plan keeps their room there.
	nominated map[types.UID]bool
}

// readRefusals reads the histories of the pools, adds what became of nodes since, and decides for each pending pod whether nodes may be
// launched for it.
func (p *Provisioner) readRefusals(ctx context.Context, snap *snapshot.Snapshot) (*refusals, error) {
	r := &refusals{
		p: p, pools: map[string]*karpv1.NodePool{}, histories: map[string]*refusal.History{}, changed: map[string]bool{},
		classes: p.takeClasses(), failed: map[string]bool{}, undecided: map[string]bool{},
	}
	r.see(snap)
	for i := range snap.Pools {
		r.read(ctx, snap.Pools[i].NodePool)
	}
	for _, pool := range snap.Closed {
		r.read(ctx, pool)
	}
	search := &refusal.Search{Snapshot: snap, Classes: r.classes, Pods: snap.Waiting()}
	r.add(refusal.FindAccepted(snap, r.histories, r.classes))
	r.add(search.Find())
	r.judge()
	for _, pod := range search.Pods {
		if len(r.verdicts) == 0 && !r.anyHistory() {
			break
		}
		class := r.classes.Of(pod)
		for name, h := range r.histories {
			r.changed[name] = h.See(class, snap.Now) || r.changed[name]
		}
	}
	return r, r.write(ctx)
}

// see has the refusals be those of a snapshot that is planned. A pass may take several: a node that was in flight in the first has come up
// in the next, and keeps its pods no longer, or has refused them.
func (r *refusals) see(snap *snapshot.Snapshot) {
	r.snap, r.nominated = snap, map[types.UID]bool{}
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		for _, uid := range n.Nominated {
			r.nominated[uid] = r.nominated[uid] || !n.Deleting && n.KeepsNominated(uid)
		}
	}
}

// takeClasses are the classes of the last pass that are of use in this one: pods that have not changed.
func (p *Provisioner) takeClasses() refusal.Classes {
	if p.classes == nil || len(p.classes) > 2*p.classesUsed+1000 {
		p.classes = refusal.Classes{}
	}
	return p.classes
}

// read reads the history of a pool, and resets it if what it depends on has changed.
func (r *refusals) read(ctx context.Context, pool *karpv1.NodePool) {
	r.pools[pool.Name] = pool
	h := refusal.Read(pool)
	r.histories[pool.Name] = h
	cause, known := r.p.causeOf(ctx, pool)
	if !known {
		return
	}
	_, has := pool.Annotations[karpv1.AnnotationRefusedPods]
	removed := !has && condition.IsTrue(pool, karpv1.ConditionPodsRefused)
	changed := h.ResetIfChanged(cause, removed, r.snap.Now)
	r.changed[pool.Name] = h.Expire(r.snap.Now) || changed
}

// causeOf returns what the outcome for nodes of the pool depends on; false if it is not known now.
func (p *Provisioner) causeOf(ctx context.Context, pool *karpv1.NodePool) (refusal.Cause, bool) {
	class := &awsv1.EC2NodeClass{}
	key := client.ObjectKey{Name: pool.Spec.Template.Spec.NodeClassRef.Name}
	if err := p.Client.Get(ctx, key, class, client.UnsafeDisableDeepCopy); err != nil {
		return refusal.Cause{}, false
	}
	images := make([]string, len(class.Status.AMIs))
	for i, ami := range class.Status.AMIs {
		images[i] = ami.ID
	}
	slices.Sort(images)
	return refusal.Cause{Pool: pool.Generation, Class: class.Generation, ClassUID: class.UID, Images: strings.Join(images, ",")}, true
}

func (r *refusals) anyHistory() bool {
	for _, h := range r.histories {
		if len(h.Classes) > 0 {
			return true
		}
	}
	return false
}

// add adds findings to the histories of their pools, and counts those that are new.
func (r *refusals) add(found []refusal.Finding) {
	byPool := map[string][]refusal.Finding{}
	for _, f := range found {
		switch {
		case f.Outcome == refusal.Undecided:
			r.undecided[f.Class] = true
		case f.Outcome == refusal.Accepted: // in whichever pool: the pods have a node
			for name := range r.histories {
				byPool[name] = append(byPool[name], f)
			}
		default:
			byPool[f.Pool] = append(byPool[f.Pool], f)
		}
	}
	for name, list := range byPool {
		h := r.histories[name]
		if h == nil { // the pool is gone, and launches nothing
			continue
		}
		for _, f := range h.Add(list, r.snap.Now, r.p.Pace.Of(refusal.FirstPause)) {
			r.changed[name] = true
			if f.Outcome == refusal.Refused {
				r.p.Metrics.RefusedNodes.WithLabelValues(name, string(f.Cause)).Inc()
				r.p.Log.Warn("a node does not run the pods that it was launched for", "NodePool", name, "NodeClaim", f.Claim,
					"Node", f.Node, "Pod", f.PodName(), "cause", string(f.Cause), "why", f.Why)
			}
		}
	}
}

// judge decides for each class with a history.
func (r *refusals) judge() {
	r.verdicts = map[string]refusal.Verdict{}
	judge := refusal.NewJudge(r.histories, r.snap)
	for _, h := range r.histories {
		for class := range h.Classes {
			if _, known := r.verdicts[class]; known {
				continue
			}
			if v := judge.Of(class); v.State != refusal.Free {
				r.verdicts[class] = v
			}
		}
	}
}

// write writes the histories that have changed. A pool with a history that could not be written launches nothing for the pods concerned:
// what is not written is forgotten by the next process.
func (r *refusals) write(ctx context.Context) error {
	var errs []error
	for name, changed := range r.changed {
		pool := r.pools[name]
		if !changed || pool.DeletionTimestamp != nil {
			continue
		}
		after, err := r.writeHistory(ctx, pool)
		if err != nil {
			r.failed[name] = true
			if client.IgnoreNotFound(err) != nil { // a pool that is gone launches nothing
				errs = append(errs, fmt.Errorf("record the pods that nodes of node pool %q do not run: %w", name, err))
			}
			continue
		}
		r.pools[name], r.changed[name] = after, false
	}
	return errors.Join(errs...)
}

// writeHistory writes the history of the pool, and returns the pool with it. Others write the pool's status often, so a conflict is no
// reason to keep its pods waiting for another pass, unless the history itself is another one now: a person has removed it.
func (r *refusals) writeHistory(ctx context.Context, pool *karpv1.NodePool) (*karpv1.NodePool, error) {
	after := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: pool.Name}}
	err := patch.ObjectWithRetry(ctx, patch.Clients{Client: r.p.Client, Live: r.p.Live}, after, func(now *karpv1.NodePool) error {
		if now.UID != pool.UID || now.Annotations[karpv1.AnnotationRefusedPods] != pool.Annotations[karpv1.AnnotationRefusedPods] {
			return errHistoryChanged
		}
		_, err := r.histories[pool.Name].Write(now)
		return err
	})
	return after, err
}

var errHistoryChanged = errors.New("another writer has changed the history since; the next pass reads it")

// may reports whether a node may be launched for the pod now. probing is true in the plan for pods that are due.
func (r *refusals) may(pod *corev1.Pod, probing bool) bool {
	if len(r.verdicts) == 0 || pod.Spec.NodeName != "" || r.nominated[pod.UID] {
		return true
	}
	v, concerned := r.verdicts[r.classes.Of(pod)]
	return !concerned || probing && v.State == refusal.Due && !r.failed[v.Pool]
}

// free is the snapshot without the pods for which no node may be launched.
func (r *refusals) free(all *snapshot.Snapshot, probing bool) *snapshot.Snapshot {
	if len(r.verdicts) == 0 {
		return all
	}
	out := map[types.UID]bool{}
	for _, pod := range all.Pods {
		if !r.may(pod, probing) {
			out[pod.UID] = true
		}
	}
	return withoutPods(all, out)
}

func withoutPods(all *snapshot.Snapshot, out map[types.UID]bool) *snapshot.Snapshot {
	if len(out) == 0 {
		return all
	}
	return all.Without(snapshot.Exclusion{
		Pod:       func(pod *corev1.Pod) bool { return out[pod.UID] },
		DaemonSet: func(*snapshot.DaemonSet) bool { return false },
	})
}

// relaunched returns the pods that a plan has another node for though an initialized one was launched for them, or for equal pods, and
// never ran one of them. It adds these nodes to the histories.
func (r *refusals) relaunched(ctx context.Context, plan *schedule.Plan, probing bool) (map[types.UID]bool, error) {
	var pods []*corev1.Pod
	for i := range plan.Launches {
		for _, pod := range plan.Launches[i].Pods {
			if pod.Spec.NodeName == "" && !snapshot.IsVirtual(pod) {
				pods = append(pods, pod)
			}
		}
	}
	if len(pods) == 0 {
		return nil, nil
	}
	fills := map[string]bool{}
	for _, placement := range plan.Placements {
		fills[placement.Node] = true
	}
	found := (&refusal.Search{Snapshot: r.snap, Classes: r.classes, Pods: pods, Relaunched: true, Fills: fills}).Find()
	if len(found) == 0 {
		return nil, nil
	}
	clear(r.undecided)
	r.add(found)
	r.judge()
	err := r.write(ctx)
	out := map[types.UID]bool{}
	for _, pod := range pods {
		if !r.may(pod, probing) || r.undecided[r.classes.Of(pod)] {
			out[pod.UID] = true
		}
	}
	return out, err
}

// classOf is the class of a pod where any class has a verdict; else computing it would be for nothing.
func (r *refusals) classOf(pod *corev1.Pod) string {
	if len(r.verdicts) == 0 {
		return ""
	}
	return r.classes.Of(pod)
}

// due reports whether a node may be tried for any pending pod.
func (r *refusals) due() bool {
	return slices.ContainsFunc(r.snap.Waiting(), func(pod *corev1.Pod) bool {
		return !r.may(pod, false) && r.may(pod, true)
	})
}

// one leaves of the launches that are for pods that are due only the first, with the others for its gang: kube-scheduler binds pods of a
// gang together or not at all.
func (r *refusals) one(launches []schedule.Launch) []schedule.Launch {
	groups, tried, with := snapshot.ReadGroups(r.snap), false, map[*snapshot.Group]bool{}
	return slices.DeleteFunc(slices.Clone(launches), func(l schedule.Launch) bool {
		if !slices.ContainsFunc(l.Pods, func(pod *corev1.Pod) bool { return !r.may(pod, false) }) {
			return false
		}
		if tried {
			return !slices.ContainsFunc(l.Pods, func(pod *corev1.Pod) bool { return with[groups.Of(pod)] })
		}
		tried = true
		for _, pod := range l.Pods {
			if g := groups.Of(pod); g != nil && g.Gang {
				with[g] = true
			}
		}
		return false
	})
}

// withoutLaunchesFor drops launches for any of the pods.
func withoutLaunchesFor(launches []schedule.Launch, pods map[types.UID]bool) []schedule.Launch {
	return slices.DeleteFunc(slices.Clone(launches), func(l schedule.Launch) bool {
		return slices.ContainsFunc(l.Pods, func(pod *corev1.Pod) bool { return pods[pod.UID] })
	})
}
