package explain

import (
	"fmt"
	"slices"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// waiver is a set of rules that do not count.
type waiver struct {
	taints, volume, ports, limits, minValues, availability bool
	// pool and pod are label keys on which the pool or the pod requires nothing.
	pool, pod []string
	// constraints are topology constraints that do not count.
	constraints []Constraint
}

func (l waiver) withoutPool(key string) waiver {
	l.pool = append(slices.Clone(l.pool), key)
	return l
}

func (l waiver) withoutPod(keys ...string) waiver {
	l.pod = slices.Concat(l.pod, keys)
	return l
}

func (l waiver) withoutConstraint(c Constraint) waiver {
	l.constraints = append(slices.Clone(l.constraints), c)
	return l
}

// and joins two waivers.
func (l waiver) and(o waiver) waiver {
	return waiver{
		taints: l.taints || o.taints, volume: l.volume || o.volume, ports: l.ports || o.ports, limits: l.limits || o.limits,
		minValues: l.minValues || o.minValues, availability: l.availability || o.availability,
		pool: slices.Concat(l.pool, o.pool), pod: slices.Concat(l.pod, o.pod), constraints: slices.Concat(l.constraints, o.constraints),
	}
}

// template is the template of the pool under a waiver: the same one each time, so that what is known of it stays.
func (e *Explainer) template(t *nodepool.Template, l waiver) *nodepool.Template {
	replaced := len(l.pool) > 0 || l.minValues || l.availability
	if !replaced && !l.limits {
		return t
	}
	key := fmt.Sprintf("%d %q %t %t %t", t.Index(), slices.Sorted(slices.Values(l.pool)), l.minValues, l.availability, l.limits)
	known := e.templates[key]
	if known == nil {
		if known = t; replaced {
			known = t.Replaced(e.pool(t, l))
		}
		if l.limits {
			known = known.Unlimited()
		}
		e.templates[key] = known
	}
	return known
}

// pool is the template's pool under a waiver.
func (e *Explainer) pool(t *nodepool.Template, l waiver) *snapshot.Pool {
	out := *e.sourcePool(t)
	np := out.NodePool.DeepCopy()
	out.NodePool = np
	spec := &np.Spec.Template
	for _, key := range l.pool {
		spec.Spec.Requirements = slices.DeleteFunc(
			spec.Spec.Requirements,
			func(r karpv1.Requirement) bool { return e.labels().Normalize(r.Key) == key },
		)
		for k := range spec.Labels {
			if e.labels().Normalize(k) == key {
				delete(spec.Labels, k)
			}
		}
	}
	if l.minValues {
		for i := range spec.Spec.Requirements {
			spec.Spec.Requirements[i].MinValues = nil
		}
	}
	if l.availability {
		out.InstanceTypes = slices.Clone(out.InstanceTypes)
		for i, it := range out.InstanceTypes {
			full := *it
			full.Offerings = slices.Clone(it.Offerings)
			for k := range full.Offerings {
				full.Offerings[k].Available = true
			}
			out.InstanceTypes[i] = &full
		}
	}
	return &out
}

// sourcePool is the snapshot's pool of the template.
func (e *Explainer) sourcePool(t *nodepool.Template) *snapshot.Pool {
	i := slices.IndexFunc(e.s.Pools, func(p snapshot.Pool) bool { return p.NodePool.Name == t.Pool().Name })
	return &e.s.Pools[i]
}

// poolKeys are the label keys that the pool's spec constrains, sorted.
func (e *Explainer) poolKeys(t *nodepool.Template) []string {
	var keys []string
	for _, r := range t.Pool().Spec.Template.Spec.Requirements {
		keys = append(keys, e.labels().Normalize(r.Key))
	}
	for k := range t.Pool().Spec.Template.Labels {
		keys = append(keys, e.labels().Normalize(k))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
