package podclass

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/support"
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

// spreadPod is one of the pods. Its spreads are made groups.
func (x *Compiler) spreadPod(k *Constraints) topology.SpreadPod {
	out := topology.SpreadPod{Pod: k.pod, Node: k.counted, Tolerations: x.tolerations(k.pod)}
	var lists []*nodepool.Candidates
	out.Launchable = func(key string, present []string) []string {
		if lists == nil {
			lists = x.launchable(launchQuery{node: &k.node, volumes: k.volumes, tolerations: &out.Tolerations, needs: k.needs})
		}
		return domainsOf(lists, nodepool.DomainQuery{Key: key, Present: present, Requests: k.least})
	}
	out.Countable = func(key string, affinity, taints bool) []string {
		q := launchQuery{volumes: []requirement.Interned{x.pools.Intern(requirement.Set{})}, node: &requirement.Pod{}}
		if affinity {
			q.node = &k.counted
		}
		if taints {
			q.tolerations = &out.Tolerations
		}
		return domainsOf(x.launchable(q), nodepool.DomainQuery{Key: key})
	}
	return out
}

// domainsOf are the values, sorted, of a label on nodes that could be launched now.
func domainsOf(lists []*nodepool.Candidates, q nodepool.DomainQuery) []string {
	var domains []string
	for _, cands := range lists {
		domains = append(domains, cands.Domains(q)...)
	}
	slices.Sort(domains)
	return slices.Compact(domains)
}

// launchQuery selects candidates for new nodes.
type launchQuery struct {
	// node holds what the nodes must satisfy, in one of the topologies of volumes.
	node    *requirement.Pod
	volumes []requirement.Interned
	// tolerations must cover the taints of the pool, if they are not nil.
	tolerations *[]corev1.Toleration
	// needs holds what the nodes must have of kubelet and CSI drivers.
	needs support.Needs
}

// launchable are the candidates for new nodes, by pool, by each alternative of what is required and by each topology of volumes.
// Preferences do not count.
func (x *Compiler) launchable(q launchQuery) []*nodepool.Candidates {
	terms, out := q.node.Required, []*nodepool.Candidates{}
	if len(terms) == 0 {
		terms = []requirement.Set{{}}
	}
	for _, t := range x.pools.All() {
		if t.Unusable().Code != "" {
			continue
		}
		if x.support.OnNew(t.Pool().Name, q.needs) != nil {
			continue
		}
		if q.tolerations != nil {
			if _, blocked := snapshot.UntoleratedHard(*q.tolerations, t.Taints()); blocked {
				continue
			}
		}
		all := t.Candidates(t.Requirements())
		for _, term := range terms {
			cands := all.Narrow(x.pools.Intern(q.node.Selector.Intersect(term)))
			if cands == nil {
				continue
			}
			for _, alt := range q.volumes {
				if with := cands.Narrow(alt); with != nil {
					out = append(out, with)
				}
			}
		}
	}
	return out
}
