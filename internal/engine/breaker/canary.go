package breaker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/rollout"
)

// CanaryRecheck is how often nodes in their soak are looked at: pods change without notice.
const CanaryRecheck = 10 * time.Second

// Pods are the pods and the Node of a claim.
type Pods struct {
	Node *corev1.Node
	Pods []*corev1.Pod
}

// Canary is how nodes are judged in a roll-out with canaries: by their pods, too. Windows.Soak is that of the roll-out.
type Canary struct {
	// Pods reads the Node and the pods of a claim; nil for no Node.
	Pods func(*karpv1.NodeClaim) (*Pods, error)
	// Failed are the claims that are known to have failed: their pods show nothing about others.
	Failed map[types.UID]bool
	// Recheck is how often pods are looked at; zero stands for CanaryRecheck.
	Recheck time.Duration
}

// FailedClaims are the claims with nodes that have failed in their soak.
func (b *History) FailedClaims() map[types.UID]bool {
	out := map[types.UID]bool{}
	if b.Soaks != nil {
		for _, o := range b.Soaks.Failures {
			out[o.UID] = true
		}
	}
	return out
}

// siblings are the pods on nodes that are known to work: those of claims that are to be replaced, and those that have survived their soak.
func (m Members) siblings(now time.Time) ([]*corev1.Pod, error) {
	var out []*corev1.Pod
	for _, c := range m.Claims {
		soaks := current(c, m.Pool, m.Class) && m.examined(c, now)
		if soaks || m.Canary.Failed[c.UID] || !condition.IsTrue(c, karpv1.ConditionInitialized) {
			continue
		}
		p, err := m.Canary.Pods(c)
		if err != nil {
			return nil, err
		}
		if p != nil {
			out = append(out, p.Pods...)
		}
	}
	return out, nil
}

// examined reports whether the pods of a claim's node show whether it has failed in its soak: what began in it shows a little later.
func (m Members) examined(c *karpv1.NodeClaim, now time.Time) bool {
	initialized, _ := condition.Get(c, karpv1.ConditionInitialized)
	late := rollout.Window{Soak: m.soak()}.Settle() + toleratedOutage
	return initialized.Status != metav1.ConditionTrue || now.Before(initialized.LastTransitionTime.Add(m.soak()+late))
}

// examine adds to the health of a node in its soak what its pods show. siblings reads those on other nodes.
func (m Members) examine(c *karpv1.NodeClaim, h Health, siblings func() ([]*corev1.Pod, error), now time.Time) (Health, error) {
	p, err := m.Canary.Pods(c)
	if err != nil || p == nil || h.Gone {
		return h, err
	}
	h.Kubelet = p.Node.Status.NodeInfo.KubeletVersion
	if h.Fault != "" || !m.examined(c, now) {
		return h, nil
	}
	window := rollout.Window{Soak: m.soak(), Now: now}
	e, found := rollout.ExamineNode(p.Node, c.Status.Allocatable)
	if !found {
		elsewhere, err := siblings()
		if err != nil {
			return h, err
		}
		e, found = rollout.ComparePods(p.Pods, elsewhere, window)
	}
	if found {
		h.Fault, h.Evidence, h.Since = e.Message(), &e, e.Since.Time
	}
	return h, nil
}

// judgeCanary is the verdict on a claim in a roll-out with canaries. A node is in its soak for as long as the node that it replaces is
// there: its pods have not come yet.
func (m Members) judgeCanary(v Verdict, c *karpv1.NodeClaim, now time.Time) Verdict {
	if v.Stage == Survived && m.replacedRemains(c) {
		v.Stage, v.Next = Soaking, now.Add(m.recheck())
	}
	if v.Stage == Soaking && !v.Next.IsZero() {
		v.Until = v.Next
		if soon := now.Add(m.recheck()); soon.Before(v.Next) {
			v.Next = soon
		}
	}
	return v
}

func (m Members) recheck() time.Duration {
	if m.Canary.Recheck > 0 {
		return m.Canary.Recheck
	}
	return CanaryRecheck
}

// replacedRemains reports whether a claim is there that this one was launched to replace.
func (m Members) replacedRemains(c *karpv1.NodeClaim) bool {
	names := strings.Split(c.Annotations[karpv1.AnnotationReplaces], ",")
	return slices.ContainsFunc(m.Claims, func(o *karpv1.NodeClaim) bool {
		return slices.Contains(names, o.Name) && o.UID != c.UID && !m.Canary.Failed[o.UID]
	})
}

// proven reports whether a pool launches what is known to be good, in place of images that were rolled back.
func proven(pool *karpv1.NodePool, class *awsv1.EC2NodeClass) bool {
	_, rolled := class.Rollback()
	good, known := class.KnownGood()
	return rolled && known && slices.Equal(awsv1.ImageIDs(class.Status.AMIs), awsv1.ImageIDs(good.AMIs)) && sameTemplate(pool, class, good)
}

// sameTemplate reports whether images are known to be good with the template of a pool and its class.
func sameTemplate(pool *karpv1.NodePool, class *awsv1.EC2NodeClass, good awsv1.KnownGood) bool {
	return good.Hash == class.Annotations[awsv1.AnnotationNodeClassHash] &&
		good.Pools[pool.Name] == pool.Annotations[karpv1.AnnotationNodePoolHash]
}

// batch is FirstBatch or, in a roll-out with canaries, whether the wave has no more room.
func (b *History) batch(verdicts []Verdict, batch Batch) (why string, wait bool) {
	if !batch.Canary {
		return b.FirstBatch(verdicts, batch)
	}
	if b.Rollout == nil {
		return "", false
	}
	room, why := b.Wave(verdicts, batch.Unseen)
	return why, room == 0
}

// LimitedByWave reports whether nothing but the wave of a roll-out with canaries limits replacements.
func (b *History) LimitedByWave(q Request) bool {
	_, fails := b.NewNodesFail()
	return q.Batch.Canary && b.Rollout != nil && covered(q.Reason) && !fails && b.State(q.Reason, q.InFlight, q.Now) == Closed
}

// Wave returns how many nodes the wave under way may still replace, and how far it has come. unseen are replacements that were started and
// that no verdict is about yet. There must be a roll-out.
func (b *History) Wave(verdicts []Verdict, unseen int) (room int, progress string) {
	count, soaking := rollout.Count{Unseen: unseen}, []string{}
	until := time.Time{}
	for _, v := range b.counting(verdicts) {
		switch {
		case !v.Replaces:
		case v.Stage == Survived:
			count.Survived++
		case v.Stage == Soaking:
			count.Soaking++
			soaking = append(soaking, v.Claim)
			if v.Until.After(until) {
				until = v.Until
			}
		case v.Stage == FailedInSoak:
			count.Failed++
		}
	}
	state := *b.Rollout
	state.Survived = max(state.Survived, count.Survived)
	wave := state.Wave()
	progress = fmt.Sprintf("wave %d of %d of the roll-out, with %d of %d nodes replaced", wave.Number, wave.Of, state.Survived, state.Nodes)
	slices.Sort(soaking)
	switch {
	case len(soaking) > 0 && !until.IsZero():
		progress += fmt.Sprintf(": NodeClaims %s must stay healthy, with their pods, until %s at least, for a soak of %v",
			shortened(soaking), until.UTC().Format(time.RFC3339), state.Soak.Duration)
	case len(soaking) > 0:
		progress += fmt.Sprintf(": NodeClaims %s must become ready and stay healthy, with their pods, for a soak of %v",
			shortened(soaking), state.Soak.Duration)
	case count.Failed > 0:
		progress += fmt.Sprintf(": %d new nodes have failed", count.Failed)
	}
	return state.Room(count), progress
}

// shortened lists names, a few of many.
func shortened(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// WaveZones counts the new nodes of a roll-out by zone: those of them that have survived, and those in their soak.
func (b *History) WaveZones(verdicts []Verdict) map[string]int {
	out := map[string]int{}
	for _, v := range b.counting(verdicts) {
		if v.Replaces && (v.Stage == Survived || v.Stage == Soaking) && v.Zone != "" {
			out[v.Zone]++
		}
	}
	return out
}

// UpdateRollout has the history hold the roll-out that is under way, if the pool rolls out with canaries. Reasons that are not paused
// begin anew with it: nodes of other images prove nothing.
func (b *History) UpdateRollout(fleet Fleet, policy karpv1.Rollout, now time.Time) {
	if !policy.Canary() || fleet.Proven {
		b.Rollout = nil
		return
	}
	survived := 0
	for _, v := range b.counting(fleet.Verdicts) {
		if v.Replaces && v.Stage == Survived {
			survived++
		}
	}
	before := b.Rollout
	b.Rollout = rollout.Next(before, rollout.Fleet{
		Images: fleet.Images, OldZones: fleet.OldZones, PerZone: policy.CanaryPerZone, Soak: policy.Soak.Duration,
	}, survived, now)
	if b.Rollout != nil && (before == nil || !before.Started.Equal(&b.Rollout.Started)) {
		for reason, r := range b.Reasons {
			if r.Paused.IsZero() {
				b.Reasons[reason] = &Record{Past: truncated(now)}
			}
		}
	}
}

// canaryMessage describes why a roll-out with canaries is paused, and what to do.
func (b *History) canaryMessage(pool, class string) string {
	wave := b.Rollout.Wave()
	return fmt.Sprintf("The roll-out is paused in wave %d of %d: %s. The old nodes stay; pending pods still get nodes. "+
		"It goes on when you edit the NodePool or its EC2NodeClass, when another image is used, or when a single node launched after %s "+
		"stays healthy for %v",
		wave.Number, wave.Of, b.canaryFaults(pool, class), b.Soaks.Next.UTC().Format(time.RFC3339), b.Rollout.Soak.Duration)
}

// canaryFaults describes how many nodes have failed, what they share, and the evidence.
func (b *History) canaryFaults(pool, class string) string {
	r := b.Soaks
	return fmt.Sprintf("%d of the last %d new nodes of NodePool %s became ready and failed %s, all of %s: %s",
		r.Failed, r.Of, pool, r.delays(), b.shared(class), r.faults())
}

// shared names what the nodes that failed have in common.
func (b *History) shared(class string) string {
	r := b.Soaks
	out := []string{fmt.Sprintf("EC2NodeClass %s at generation %d", class, b.Cause.Class)}
	for _, trait := range []struct {
		name string
		of   func(Outcome) string
	}{
		{"image", func(o Outcome) string { return o.Image }},
		{"kubelet", func(o Outcome) string { return o.Kubelet }},
		{"instance type", func(o Outcome) string { return o.Type }},
		{"zone", func(o Outcome) string { return o.Zone }},
	} {
		failures := slices.DeleteFunc(slices.Clone(r.Failures), func(o Outcome) bool { return o.Image != r.Image })
		if v := distinctive(failures, trait.of); v != "" {
			out = append(out, trait.name+" "+v)
		}
	}
	return strings.Join(out, ", ")
}

// GoodOf is what the nodes of a pool were launched from, if one of them at least has survived its soak, none has failed, and none is to be
// replaced; nil otherwise.
func (b *History) GoodOf(pool *karpv1.NodePool, class *awsv1.EC2NodeClass, fleet Fleet) *Good {
	good := slices.ContainsFunc(fleet.Verdicts, func(v Verdict) bool {
		return v.Stage == Survived && v.Steady && slices.Contains(fleet.Images, v.Image)
	})
	_, fail := b.NewNodesFail()
	if !good || fail || b.Soaks != nil || fleet.Rollout || len(b.Paused()) > 0 {
		return nil
	}
	return &Good{
		Images: awsv1.ImageIDs(class.Status.AMIs), Pool: pool.Annotations[karpv1.AnnotationNodePoolHash],
		Class: class.Annotations[awsv1.AnnotationNodeClassHash],
	}
}
