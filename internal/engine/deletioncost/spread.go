package deletioncost

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// spreadGroups divides the ranked pods of a ReplicaSet into groups that leave one after another, and returns the pods
// that must stay although their nodes may go: removing them would violate a topology spread constraint with
// DoNotSchedule. Without such constraints a group is the pods of a node, with them a pod.
func spreadGroups(ranked, staying []placed, position map[string]int) (groups [][]placed, kept []placed) {
	if len(ranked) == 0 {
		return nil, nil
	}
	rules := newSpreadRules(ranked[0].pod)
	if len(rules) == 0 {
		for i, p := range ranked {
			if i == 0 || position[p.node.Name] != position[ranked[i-1].node.Name] {
				groups = append(groups, nil)
			}
			groups[len(groups)-1] = append(groups[len(groups)-1], p)
		}
		return groups, nil
	}
	left := ranked
	for len(left) > 0 && position[left[0].node.Name] == 0 { // evicted in any case
		if len(groups) == 0 {
			groups = append(groups, nil)
		}
		groups[0], left = append(groups[0], left[0]), left[1:]
	}
	for _, p := range staying {
		rules.count(p)
	}
	for _, p := range left {
		rules.count(p)
	}
	queues := rules.queues(left)
	for {
		first := -1
		for i, q := range queues {
			if len(q) > 0 && (first < 0 || q[0] < queues[first][0]) && rules.allow(left[q[0]]) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		p := left[queues[first][0]]
		queues[first] = queues[first][1:]
		rules.remove(p)
		groups = append(groups, []placed{p})
	}
	for _, q := range queues {
		for _, i := range q {
			kept = append(kept, left[i])
		}
	}
	return groups, kept
}

// spreadRules count the pods of a ReplicaSet by the domains of its topology spread constraints.
type spreadRules []*spreadRule

type spreadRule struct {
	key     string
	maxSkew int
	// pods counts how many pods each domain has; domains is how many domains have so many pods.
	pods    map[string]int
	domains map[int]int
	most    int // pods in a domain
}

// newSpreadRules returns the rules of the pod's constraints with DoNotSchedule that select the pod itself. The counts
// are of the ReplicaSet's own pods: others that a constraint selects, such as those of an older ReplicaSet, are not.
func newSpreadRules(p *corev1.Pod) (out spreadRules) {
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil || c.WhenUnsatisfiable != corev1.DoNotSchedule || !selector.Matches(labels.Set(p.Labels)) {
			continue
		}
		out = append(out, &spreadRule{key: c.TopologyKey, maxSkew: int(c.MaxSkew), pods: map[string]int{}, domains: map[int]int{}})
	}
	return out
}

// queues divides pods, by their index, into those that are in the same domains.
func (s spreadRules) queues(pods []placed) (out [][]int) {
	known := map[string]int{}
	for i, p := range pods {
		key := ""
		for _, r := range s {
			key += p.node.Labels[r.key] + "/"
		}
		q, ok := known[key]
		if !ok {
			q = len(out)
			known[key], out = q, append(out, nil)
		}
		out[q] = append(out[q], i)
	}
	return out
}

func (s spreadRules) count(p placed) {
	for _, r := range s {
		r.change(p.node.Labels[r.key], 1)
	}
}

func (s spreadRules) remove(p placed) {
	for _, r := range s {
		r.change(p.node.Labels[r.key], -1)
	}
}

// allow reports whether no domain would have more than maxSkew pods above the pod's own once that is gone.
func (s spreadRules) allow(p placed) bool {
	for _, r := range s {
		own := r.pods[p.node.Labels[r.key]]
		most := r.most
		if own == most && r.domains[most] == 1 {
			most-- // own is the only domain with the most
		}
		if most-(own-1) > r.maxSkew {
			return false
		}
	}
	return true
}

func (r *spreadRule) change(domain string, by int) {
	before := r.pods[domain]
	r.pods[domain] += by
	r.domains[before]--
	r.domains[before+by]++
	r.most = max(r.most, before+by)
	if r.most > 0 && r.domains[r.most] == 0 {
		r.most-- // only the domain of a pod that left had so many
	}
}
