package podclass

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// noteRequests lowers what each of the pods requests at least.
func (c *Constraints) noteRequests(requests resources.Vec) {
	if c.least == nil {
		c.least = slices.Clone(requests)
		return
	}
	for axis, x := range requests {
		c.least[axis] = min(c.least[axis], x)
	}
}

// spreadPod is one of the pods, whose spreads are made groups.
func (x *Compiler) spreadPod(k *Constraints) topology.SpreadPod {
	out := topology.SpreadPod{Pod: k.pod, Node: k.node, Tolerations: x.tolerations(k.pod)}
	var lists []*nodepool.Candidates
	out.Launchable = func(key string, present []string) []string {
		if lists == nil {
			lists = x.launchable(k, out.Tolerations)
		}
		var domains []string
		for _, cands := range lists {
			domains = cands.Domains(domains, nodepool.DomainQuery{Key: key, Present: present, Requests: k.least})
		}
		slices.Sort(domains)
		return domains
	}
	return out
}

// launchable are the candidates for new nodes of the pods, by pool, by each alternative of what they require and by
// each topology of their volumes. Preferences do not count.
func (x *Compiler) launchable(k *Constraints, tolerations []corev1.Toleration) []*nodepool.Candidates {
	terms, out := k.node.Required, []*nodepool.Candidates{}
	if len(terms) == 0 {
		terms = []requirement.Set{{}}
	}
	for _, t := range x.pools.All() {
		if _, blocked := snapshot.UntoleratedHard(tolerations, t.Taints()); blocked || t.Unusable().Code != "" {
			continue
		}
		all := t.Candidates(t.Requirements())
		for _, term := range terms {
			cands := all.Narrow(x.pools.Intern(k.node.Selector.Intersect(term)))
			if cands == nil {
				continue
			}
			for _, alt := range k.volumes {
				if with := cands.Narrow(alt); with != nil {
					out = append(out, with)
				}
			}
		}
	}
	return out
}
