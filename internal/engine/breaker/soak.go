package breaker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/rollout"
)

// Soak sets how long a node must stay ready after its initialization before its launch counts as a success. A kubelet that stops shows
// after 40 to 50 s, agents that take a node down fail within their first restarts, and EC2 reports a failed status check after two minutes:
// all of that shows within three minutes. A rollout of a good image takes that much longer, once.
const Soak = 3 * time.Minute

// Windows states how long new nodes are watched. A zero field stands for the constant of its name.
type Windows struct {
	Soak, LateAfter time.Duration
	// Early has a node that registers and does not become Ready fail after LateAfter, as one does that does not register.
	Early bool
}

func (w Windows) soak() time.Duration { return cmp.Or(w.Soak, Soak) }

func (w Windows) lateAfter() time.Duration { return cmp.Or(w.LateAfter, LateAfter) }

// toleratedOutage sets how long a node may be unhealthy within its soak: agents restart kubelet and the network once they have configured
// them.
const toleratedOutage = 30 * time.Second

// ReasonNewNodesFail is the reason, in place of a DisruptionReason, for which replacing pauses while new nodes fail in their soak. It
// covers all reasons but repair: whatever a node is replaced for, the new one would fail.
const ReasonNewNodesFail karpv1.DisruptionReason = "NewNodesFail"

// Health describes what the Node of a claim shows.
type Health struct {
	// Gone is true if there is no Node.
	Gone bool
	// Fault holds what is wrong with it, in a few words; empty if nothing is.
	Fault string
	// Since is since when the fault is there or, without one, since when the Node is ready. Zero stands forever.
	Since time.Time
	// Kubelet is the version of kubelet, Evidence shows the fault, if that is not a condition; both only where nodes are rolled out with
	// canaries.
	Kubelet  string
	Evidence *rollout.Evidence
}

// tolerated is how long the fault may last: pods have had their time before they are evidence.
func (h Health) tolerated() time.Duration {
	if h.Evidence != nil && h.Evidence.Owner.Kind != "" {
		return 0
	}
	return toleratedOutage
}

// Stage states how far the soak of a node has come.
type Stage int

// The stages of a soak.
const (
	// Soaking: the node is not initialized, or not for long enough.
	Soaking Stage = iota
	// Survived: it has stayed ready.
	Survived
	// FailedInSoak: it became ready, and has failed since.
	FailedInSoak
	// Silent: it went, or never came, for a reason that states nothing of new nodes.
	Silent
)

// Verdict describes what the soak of a claim's node has shown.
type Verdict struct {
	Stage Stage
	Outcome
	// Replaces is true if the claim was launched to replace others.
	Replaces bool
	// Steady is true if the node has been healthy for as long as a soak takes.
	Steady bool
	// Next is the time when to judge the node again; zero for not before something changes.
	Next time.Time
	// Until is when the soak is over if nothing fails; only where nodes are rolled out with canaries.
	Until time.Time
}

// Judge returns what the soak of a claim's node has shown by now. A fault after the soak states nothing of the launch. A node that recovers
// within its soak begins a new one.
func (w Windows) Judge(claim *karpv1.NodeClaim, h Health, now time.Time) Verdict {
	steady := h.Since.Add(w.soak())
	v := Verdict{Outcome: outcome(claim, now), Replaces: Reason(claim) != "", Steady: h.Fault == "" && !now.Before(steady)}
	v.Kubelet, v.Evidence = h.Kubelet, h.Evidence
	initialized, _ := condition.Get(claim, karpv1.ConditionInitialized)
	ended := claim.DeletionTimestamp
	if initialized.Status != metav1.ConditionTrue {
		if ended != nil {
			v.Stage = Silent
		}
		return v
	}
	ready := initialized.LastTransitionTime.Time
	end := ready.Add(w.soak())
	faulty := h.Fault != "" && h.Since.Before(end)
	switch {
	case ended != nil && ended.Time.Before(end):
		if why := endedBy(claim); why != "" {
			return v.failed(why, ready, ended.Time)
		}
		if faulty && h.Since.Before(ended.Time) {
			return v.failed(h.Fault, ready, h.Since)
		}
		v.Stage = Silent
		return v
	case ended == nil && h.Gone && now.Before(end):
		return v.failed("its Node is gone", ready, now)
	case ended == nil && faulty:
		if until := h.Since.Add(h.tolerated()); now.Before(until) {
			v.Next = until
			return v
		}
		return v.failed(h.Fault, ready, h.Since)
	case h.Fault == "" && h.Since.After(ready) && h.Since.Before(end):
		end = h.Since.Add(w.soak())
	}
	if now.Before(end) {
		v.Next = end
		return v
	}
	v.Stage, v.At = Survived, truncated(end)
	if h.Fault == "" && !v.Steady {
		v.Next = steady
	}
	return v
}

// failed is the verdict of a node that has failed.
func (v Verdict) failed(why string, ready, at time.Time) Verdict {
	v.Stage, v.Why, v.At, v.Next = FailedInSoak, why, truncated(at), time.Time{}
	v.After = int64(max(at.Sub(ready), 0) / time.Second)
	return v
}

// endedBy is the fault that a claim is deleted for; empty if it is deleted for something else. EC2 taking back an instance is no fault.
func endedBy(claim *karpv1.NodeClaim) string {
	because, _ := condition.Get(claim, karpv1.ConditionDisruptionReason)
	if because.Status != metav1.ConditionTrue {
		return ""
	}
	return map[string]string{
		"InstanceUnhealthy": "its instance is unhealthy", "InstanceTerminating": "its instance terminated",
		"InstanceStopping": "its instance stopped", string(karpv1.DisruptionUnhealthy): "it was repaired",
	}[because.Reason]
}

// outcome describes a claim, without what became of it.
func outcome(claim *karpv1.NodeClaim, now time.Time) Outcome {
	return Outcome{
		Claim: claim.Name, UID: claim.UID, Created: truncated(claim.CreationTimestamp.Time), At: truncated(now),
		Image: claim.Status.ImageID, Type: claim.Labels[corev1.LabelInstanceTypeStable], Zone: claim.Labels[corev1.LabelTopologyZone],
	}
}

// SoakRecord describes what is remembered of nodes that failed in their soak. Those that survive are counted from the claims that exist.
type SoakRecord struct {
	// Failures are the last ones, oldest first, one per claim.
	Failures []Outcome `json:"failures,omitempty"`
	// From is since when claims count: a probe that survived shows that the cause of earlier failures is gone.
	From metav1.Time `json:"from,omitzero"`
	// Paused is since when replacing is paused; zero if it is not. Image is the one that fails: Failed of the last Of nodes.
	Paused metav1.Time `json:"paused,omitzero"`
	Image  string      `json:"image,omitempty"`
	Failed int         `json:"failed,omitempty"`
	Of     int         `json:"of,omitempty"`
	// Next is the time when the next probe may be launched, Wait the seconds between the last failure and that.
	Next metav1.Time `json:"next,omitzero"`
	Wait int64       `json:"wait,omitempty"`
}

// AddVerdicts updates the record of soaks by the verdicts on the claims that were launched with what the pool launches now; threshold is
// how many failures of an image pause replacing. It returns the failures that are new.
func (b *History) AddVerdicts(verdicts []Verdict, threshold int) (added []Outcome) {
	r := SoakRecord{}
	if b.Soaks != nil {
		r = *b.Soaks
		r.Failures = slices.Clone(r.Failures)
	}
	verdicts = b.counting(verdicts)
	for _, v := range verdicts {
		known := slices.IndexFunc(r.Failures, func(o Outcome) bool { return o.UID == v.UID })
		switch {
		case v.Stage == FailedInSoak && known < 0:
			r.Failures, added = append(r.Failures, v.Outcome), append(added, v.Outcome)
		case v.Stage == Survived && known >= 0 && r.Failures[known].Evidence == nil: // it has recovered
			r.Failures = slices.Delete(r.Failures, known, known+1)
		}
	}
	slices.SortStableFunc(r.Failures, func(a, b Outcome) int { return a.At.Compare(b.At.Time) })
	r.Failures = r.Failures[max(0, len(r.Failures)-soakWindow(threshold)):]
	b.update(&r, verdicts, added, threshold)
	b.Soaks = &r
	if len(r.Failures) == 0 && r.From.IsZero() {
		b.Soaks = nil
	}
	return added
}

// counting are the verdicts that count: of claims since the cause was last reset, and not of nodes that failed and have not been healthy
// for a whole soak since. One that failed by its pods never counts: they may only have gone.
func (b *History) counting(verdicts []Verdict) []Verdict {
	r := SoakRecord{}
	if b.Soaks != nil {
		r = *b.Soaks
	}
	return slices.DeleteFunc(slices.Clone(verdicts), func(v Verdict) bool {
		return v.Created.Before(&b.Since) || v.Created.Before(&r.From) ||
			v.Stage == Survived && slices.ContainsFunc(r.Failures, func(o Outcome) bool {
				return o.UID == v.UID && (!v.Steady || o.Evidence != nil)
			})
	})
}

// soakWindow returns how many nodes of an image count, the last ones.
func soakWindow(threshold int) int { return max(minOutcomes, 2*threshold) }

// update pauses replacing, or resumes it.
func (b *History) update(r *SoakRecord, verdicts []Verdict, added []Outcome, threshold int) {
	if r.Paused.IsZero() {
		for _, image := range r.images() {
			if failed, of := r.count(image, verdicts, threshold); b.pauses(failed, of, threshold) {
				last := r.last(image)
				r.Paused, r.Image, r.Failed, r.Of = last.At, image, failed, of
				r.Wait, r.Next = int64(firstProbe/time.Second), metav1.NewTime(last.At.Add(firstProbe))
				return
			}
		}
		return
	}
	for _, v := range verdicts {
		if v.Stage == Survived && !v.Created.Before(&r.Next) {
			*r = SoakRecord{From: r.Next}
			return
		}
	}
	for _, o := range added {
		if !o.Created.Before(&r.Next) {
			r.Wait = min(2*r.Wait, int64(maxProbe/time.Second))
			r.Next = metav1.NewTime(o.At.Add(time.Duration(r.Wait) * time.Second))
		}
	}
	failed, of := r.count(r.Image, verdicts, threshold)
	if b.resumes(failed, of) { // some have recovered
		*r = SoakRecord{Failures: r.Failures, From: r.From}
		return
	}
	r.Failed, r.Of = failed, of
}

// count counts the failures among the last nodes of an image.
func (r *SoakRecord) count(image string, verdicts []Verdict, threshold int) (failed, of int) {
	var all []Outcome
	for _, o := range r.Failures {
		if o.Image == image {
			all = append(all, o)
		}
	}
	for _, v := range verdicts {
		if v.Stage == Survived && v.Image == image {
			all = append(all, v.Outcome)
		}
	}
	slices.SortStableFunc(all, func(a, b Outcome) int { return cmp.Or(a.Created.Compare(b.Created.Time), cmp.Compare(a.UID, b.UID)) })
	all = all[max(0, len(all)-soakWindow(threshold)):]
	for _, o := range all {
		if o.Failed() {
			failed++
		}
	}
	return failed, len(all)
}

// images returns those of failures, sorted.
func (r *SoakRecord) images() []string {
	var out []string
	for _, o := range r.Failures {
		out = append(out, o.Image)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// last is the last failure of an image.
func (r *SoakRecord) last(image string) Outcome {
	var out Outcome
	for _, o := range r.Failures {
		if o.Image == image {
			out = o
		}
	}
	return out
}

// NewNodesFail reports whether new nodes of the pool fail in their soak, so that healthy nodes must not be replaced by them, and the image
// that fails.
func (b *History) NewNodesFail() (image string, paused bool) {
	if b.Soaks == nil || b.Soaks.Paused.IsZero() {
		return "", false
	}
	return b.Soaks.Image, true
}

// covered reports whether soaks decide about replacements for a reason: an unhealthy node is replaced all the same.
func covered(reason karpv1.DisruptionReason) bool { return reason != karpv1.DisruptionUnhealthy }

// SoakState is the state of the breaker for soaks, as seen by replacements for a reason. underWay are the creation times of all
// replacements, for whatever reason, that have no verdict yet.
func (b *History) SoakState(reason karpv1.DisruptionReason, underWay []time.Time, now time.Time) State {
	if _, paused := b.NewNodesFail(); !paused || !covered(reason) {
		return Closed
	}
	return stateOf(b.Soaks.Next.Time, underWay, now)
}

// SoakMessage describes why replacing is paused for all reasons: which image fails, how many of how many nodes, after how long, and what to
// do.
func (b *History) SoakMessage(pool, class string) string {
	if _, paused := b.NewNodesFail(); !paused {
		return ""
	}
	r := b.Soaks
	if b.Rollout != nil {
		return b.canaryMessage(pool, class)
	}
	image := "an unknown image"
	if r.Image != "" {
		image = "image " + r.Image
	}
	return fmt.Sprintf("%d of the last %d new nodes of NodePool %s, EC2NodeClass %s and %s became ready and failed %s: %s. "+
		"No healthy node is replaced by such a node, for drift, consolidation or expiration; pending pods still get nodes. "+
		"Find out why on a node that failed, then correct the EC2NodeClass or the image. "+
		"Replacement resumes when you edit the NodePool or its EC2NodeClass, when another image is used, or when a single node launched after %s stays ready for %v",
		r.Failed, r.Of, pool, class, image, r.delays(), r.faults(), r.Next.UTC().Format(time.RFC3339), Soak)
}

// delays returns how long after they became ready the nodes failed.
func (r *SoakRecord) delays() string {
	first, last := int64(-1), int64(0)
	for _, o := range r.Failures {
		if o.Image != r.Image {
			continue
		}
		if first < 0 || o.After < first {
			first = o.After
		}
		last = max(last, o.After)
	}
	short, long := time.Duration(max(first, 0))*time.Second, time.Duration(last)*time.Second
	if short == long {
		return fmt.Sprintf("%v later", short)
	}
	return fmt.Sprintf("%v to %v later", short, long)
}

// faults are the distinct faults, each with a claim as an example.
func (r *SoakRecord) faults() string {
	var out, seen []string
	for _, o := range r.Failures {
		if o.Image == r.Image && !slices.Contains(seen, o.Why) {
			seen = append(seen, o.Why)
			out = append(out, fmt.Sprintf("%s (NodeClaim %s)", o.Why, o.Claim))
		}
	}
	return strings.Join(out, ", ")
}

// Batch describes what limits the first nodes of a rollout.
type Batch struct {
	// Rollout is true if the pool has nodes that it would launch differently now. Otherwise nothing is at stake.
	Rollout bool
	// Size counts how many nodes are tried at a time: as many as must fail to pause replacing. 0 does not limit them.
	Size int
	// Unseen are replacements that were started and that no verdict is about yet.
	Unseen int
	// Canary is true if the pool rolls out with canaries: its waves are the limit, if a roll-out is under way.
	Canary bool
}

// FirstBatch reports whether a replacement must wait for the first nodes with an image, and why: while none of that image has survived its
// soak, so many are in it at most. Once more have survived than failed, only budgets limit the others. Verdicts are those of AddVerdicts.
func (b *History) FirstBatch(verdicts []Verdict, batch Batch) (why string, wait bool) {
	if !batch.Rollout || batch.Size == 0 {
		return "", false
	}
	survived, failed := map[string]int{}, map[string]int{}
	if b.Soaks != nil {
		for _, o := range b.Soaks.Failures {
			failed[o.Image]++
		}
	}
	var soaking []Verdict
	for _, v := range b.counting(verdicts) {
		switch {
		case v.Stage == Survived:
			survived[v.Image]++
		case v.Stage == Soaking && v.Replaces:
			soaking = append(soaking, v)
		}
	}
	proven := map[string]bool{} // the empty image stands for nodes that have none yet
	for image, n := range survived {
		proven[image] = n > failed[image]
		proven[""] = proven[""] || proven[image]
	}
	var names []string
	for _, v := range soaking {
		if !proven[v.Image] {
			names = append(names, v.Claim)
		}
	}
	unseen := batch.Unseen
	if proven[""] {
		unseen = 0
	}
	if len(names)+unseen < batch.Size {
		return "", false
	}
	slices.Sort(names)
	return fmt.Sprintf("the first nodes with what NodePool and EC2NodeClass are now must stay ready for %v before others are replaced: "+
		"NodeClaims %s", Soak, strings.Join(names, ", ")), true
}
