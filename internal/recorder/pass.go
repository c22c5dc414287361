package recorder

import (
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Pass is a pass that is being recorded. It is not safe for concurrent use. It records nothing if its Recorder is nil, or does not
// know what its Snapshot was built from.
type Pass struct {
	r         *Recorder
	line      passLine
	source    source
	calls     []call
	decisions []Decision
	// parts counts those that were flushed; lost is true if the first was dropped.
	parts int
	lost  bool
	// last is the job of the last part.
	last *job
}

// Begin begins to record the pass on a snapshot, or on one with fewer pods that was made of it by Snapshot.Without. A snapshot has
// one pass.
func (r *Recorder) Begin(kind PassKind, all, planned *snapshot.Snapshot) *Pass {
	if r == nil {
		return &Pass{}
	}
	p := &Pass{r: r, line: passLine{
		ID: passID(kind, r.ids.next(r.cfg.Now())), Kind: kind, Now: all.Now, Version: r.cfg.Version, Excluded: ExclusionOf(all, planned),
	}}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := weak.Make(all)
	p.source = r.sources[key]
	delete(r.sources, key) // the pass holds it now
	return p
}

func passID(kind PassKind, id string) string { return string(kind[0]) + "-" + id }

// ID identifies the pass; empty without a Recorder. Its decisions have IDs that begin with it.
func (p *Pass) ID() string { return p.line.ID }

// Recording reports whether calls and decisions are recorded. A nil Pass records nothing.
func (p *Pass) Recording() bool { return p != nil && p.source.objects != nil && !p.lost }

// Call records a call of the engine with plain data.
func (p *Pass) Call(name string, in, out any) {
	if p.Recording() {
		p.calls = append(p.calls, call{name, in, out})
	}
}

// Decide records a decision.
func (p *Pass) Decide(d Decision) {
	if !p.Recording() {
		return
	}
	d.Pass, d.At, d.Inputs.Version = p.line.ID, p.line.Now.UTC(), p.line.Version
	if p.r.cfg.Prices != nil {
		d.Prices = p.r.cfg.Prices()
	}
	p.decisions = append(p.decisions, d)
}

// commitTimeout is how long a decision waits for its record at most. That of a pass of 2,000 nodes with 20,000 pods takes 9 ms, and
// 500 ms if it is a keyframe (BenchmarkPass, BenchmarkKeyframe); a computer with ten times the load that it can carry takes ten times
// as long. Only a disk that hangs takes longer.
const commitTimeout = 10 * time.Second

// Commit is called before a decision is carried out: it flushes, and waits until the record is written, so that a process that is
// killed leaves no decision without one. A disk that hangs delays one decision by commitTimeout, and none after it until it writes
// again. One that is full or has failed delays none until it is tried again.
func (p *Pass) Commit() {
	p.Flush()
	if p == nil || p.last == nil || p.r.hangs() {
		return
	}
	timeout := time.NewTimer(commitTimeout)
	defer timeout.Stop()
	select {
	case <-p.last.done:
	case <-timeout.C:
		p.r.hung(p.line.ID, p.last)
	}
}

// Prepare hands what the pass sees to the writer, before it has decided anything: of a burst of pods, that takes as long as to plan them,
// and Commit waits for less. It waits for nothing. If the writer does not take it now, it may once the pass has decided.
func (p *Pass) Prepare() {
	if p.Recording() && p.parts == 0 {
		p.hand()
		p.lost = false
	}
}

// Exclude records that the pass went on with a snapshot that was made by Snapshot.Without.
func (p *Pass) Exclude(all, planned *snapshot.Snapshot) { p.line.Excluded = ExclusionOf(all, planned) }

// Flush hands what was recorded since the last Flush to the writer. It waits for nothing. A pass without calls is recorded now and
// then only.
func (p *Pass) Flush() {
	if !p.Recording() || p.parts > 0 && len(p.calls)+len(p.decisions) == 0 || p.parts == 0 && len(p.calls) == 0 && p.r.idle() {
		return
	}
	p.hand()
}

// hand hands the next part to the writer.
func (p *Pass) hand() {
	next := &part{pass: p.line, number: p.parts, objects: p.source.objects, facts: p.source.facts, calls: p.calls}
	switch {
	case p.parts > 0:
		next.objects, next.facts = nil, nil
	case p.r.cfg.NodeClasses != nil:
		next.nodeClasses = p.r.cfg.NodeClasses()
	}
	job := p.r.enqueue(next, p.decisions)
	if job == nil {
		p.lost = true
		return
	}
	p.last = job
	p.parts++
	p.calls, p.decisions = nil, nil
}

// ExclusionOf names the pods and DaemonSets of a snapshot that one made of it lacks; nil if it lacks none.
func ExclusionOf(all, planned *snapshot.Snapshot) *Exclusion {
	if all == planned {
		return nil
	}
	kept := map[*corev1.Pod]bool{}
	eachPod(planned, func(p *corev1.Pod) { kept[p] = true })
	out := &Exclusion{}
	seen := map[*corev1.Pod]bool{}
	eachPod(all, func(p *corev1.Pod) {
		if !kept[p] && !seen[p] {
			seen[p] = true
			out.Pods = append(out.Pods, string(p.UID))
		}
	})
	sets := map[string]bool{}
	for i := range planned.DaemonSets {
		sets[planned.DaemonSets[i].Namespace+"/"+planned.DaemonSets[i].Name] = true
	}
	for i := range all.DaemonSets {
		if name := all.DaemonSets[i].Namespace + "/" + all.DaemonSets[i].Name; !sets[name] {
			out.DaemonSets = append(out.DaemonSets, name)
		}
	}
	for i := range planned.Nodes {
		if why := planned.Nodes[i].Unplannable; why != "" && all.Nodes[i].Unplannable == "" {
			out.Message = why
		}
	}
	return out
}

func eachPod(s *snapshot.Snapshot, f func(*corev1.Pod)) {
	for _, list := range [][]*corev1.Pod{s.Pods, s.Virtual, s.Arriving} {
		for _, p := range list {
			f(p)
		}
	}
	for i := range s.Nodes {
		for _, p := range s.Nodes[i].Pods {
			f(p)
		}
	}
}

// Apply returns the snapshot without what was left out; the snapshot itself if nothing was.
func (x *Exclusion) Apply(s *snapshot.Snapshot) *snapshot.Snapshot {
	if x == nil {
		return s
	}
	pods, sets := map[string]bool{}, map[string]bool{}
	for _, uid := range x.Pods {
		pods[uid] = true
	}
	for _, name := range x.DaemonSets {
		sets[name] = true
	}
	return s.Without(snapshot.Exclusion{
		Pod:       func(p *corev1.Pod) bool { return pods[string(p.UID)] },
		DaemonSet: func(d *snapshot.DaemonSet) bool { return sets[d.Namespace+"/"+d.Name] },
		Message:   x.Message,
	})
}
