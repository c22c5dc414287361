package podreport

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// reach states how far an edit reaches: from the pod's own workload, and from what restores an intention, to other people's
// objects.
type reach int

// The reaches, narrowest first. docs/explain.md lists them.
const (
	// corrects a word of the pod's workload that is misspelled.
	corrects reach = iota
	// permits the pod more, and keeps its rules: a toleration, a rule that becomes a preference.
	permits
	// gives up a rule or an amount of the pod's workload.
	givesUp
	// storage changes a claim of the pod, or makes an object that nobody uses yet.
	storage
	// poolCorrects corrects a word of a NodePool, poolPermits widens what it may launch, poolGivesUp drops one of its rules.
	poolCorrects
	poolPermits
	poolGivesUp
	// shared changes an object that all nodes or all classes depend on: a DaemonSet, a StorageClass, an EC2NodeClass.
	shared
	// others changes another workload.
	others
)

// candidate is a change to try.
type candidate struct {
	summary string
	edits   []edit
	reach   reach
}

// fields returns how many fields the candidate changes. Creating, deleting or repairing an object counts as one.
func (c *candidate) fields() int {
	n := 0
	for i := range c.edits {
		n += max(1, len(c.edits[i].Fields))
	}
	return n
}

// smaller orders candidates: fewest objects, then fewest fields, then the narrowest reach. Of equal ones the first found
// comes first.
func smaller(a, b *candidate) int {
	return cmp.Or(
		cmp.Compare(len(a.edits), len(b.edits)), cmp.Compare(a.fields(), b.fields()), cmp.Compare(a.reach, b.reach),
	)
}

// generator makes candidates from the rules that exclude a pod.
type generator struct {
	*explanation
	now      outcome
	closed   []PoolReason
	workload workload
	words    vocabulary
	out      []candidate
}

// add adds a candidate of one edit.
func (g *generator) add(summary string, r reach, e edit) {
	if len(e.Patch) == 0 && e.Action == Patch {
		return
	}
	g.out = append(g.out, candidate{summary: summary, edits: []edit{e}, reach: r})
}

// editPod patches the pod, and all pods of its workload: what is planned is what the workload's controller would make.
func (g *generator) editPod(patch ...Operation) edit { return editWorkload(g.pod, g.workload, patch) }

// editWorkload patches the template of a workload through one of its pods.
func editWorkload(pod *corev1.Pod, w workload, patch []Operation) edit {
	own := prefixPatch(w.prefix, patch)
	e := edit{Edit: Edit{Object: w.Object, Action: w.action, Fields: changes(pod, patch, w.prefix), Patch: own}}
	switch {
	case w.action == Patch:
		e.Command = patchCommand(w.Object, own)
	case w.Kind == "Pod":
		e.Command = replaceCommand(w.Object, own)
	}
	e.apply = func(t *trial) bool {
		by := map[types.UID]*corev1.Pod{}
		for _, p := range w.pods {
			q, err := patched(t.current(p), patch)
			if err != nil {
				if p.UID == pod.UID {
					return false
				}
				continue // an older pod of the workload lacks the field
			}
			by[p.UID] = q
		}
		t.replacePods(by)
		return true
	}
	return e
}

// current is the pod as the trial has it: with the default spread, and with earlier edits.
func (t *trial) current(pod *corev1.Pod) *corev1.Pod {
	for _, p := range t.Pods {
		if p.UID == pod.UID {
			return p
		}
	}
	if pod.Spec.NodeName == "" {
		return pod
	}
	for i := range t.Nodes {
		if t.Nodes[i].Name != pod.Spec.NodeName {
			continue
		}
		for _, p := range t.Nodes[i].Pods {
			if p.UID == pod.UID {
				return p
			}
		}
	}
	return pod
}

// editPool patches a NodePool.
func (g *generator) editPool(pool *karpv1.NodePool, patch ...Operation) edit {
	o := Object{Kind: "NodePool", Name: pool.Name}
	e := edit{Edit: Edit{Object: o, Action: Patch, Fields: changes(pool, patch, ""), Patch: patch, Command: patchCommand(o, patch)}}
	e.apply = func(t *trial) bool {
		i := t.pool(pool.Name)
		if i < 0 {
			return false
		}
		changed, err := patched(t.Pools[i].NodePool, patch)
		if err != nil {
			return false
		}
		t.Pools[i].NodePool = changed
		return true
	}
	return e
}

// generate makes all candidates, smallest first, without repetitions.
func (g *generator) generate() []candidate {
	g.selection()
	g.tolerations()
	g.topology()
	g.ports()
	g.sizes()
	g.volumes()
	for i := range g.lab.base.Pools {
		p := &g.lab.base.Pools[i]
		if codes := g.codes(p.NodePool.Name); len(codes) > 0 {
			g.widen(p, codes)
			g.limits(p, codes)
			g.minValues(p.NodePool, codes)
		}
	}
	g.daemons()
	g.closedPools()
	g.otherWorkloads()
	slices.SortStableFunc(g.out, func(a, b candidate) int { return smaller(&a, &b) })
	seen := map[string]bool{}
	return slices.DeleteFunc(g.out, func(c candidate) bool {
		id := c.summary
		for i := range c.edits {
			id += "\n" + c.edits[i].String() + compact(c.edits[i].Patch) + c.edits[i].Manifest
		}
		repeated := seen[id]
		seen[id] = true
		return repeated
	})
}

// codes are the rules of the engine by which a pool excludes the pod, and those that exclude it from all pools.
func (g *generator) codes(pool string) map[string]bool {
	out := map[string]bool{}
	if g.now.rejection == nil {
		return out
	}
	for _, r := range g.now.rejection.Reasons {
		if r.NodePool == "" || r.NodePool == pool {
			out[string(r.Code)] = true
		}
	}
	return out
}
