package podreport

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// hardware are labels that a pod's program depends on: without them the pod gets a node on which it cannot run.
func hardware(key string) bool {
	return key == corev1.LabelArchStable || key == corev1.LabelOSStable || key == corev1.LabelWindowsBuild
}

// selected is one thing that the pod requires of a label, with the JSON pointer of it. Values are those of an In.
type selected struct {
	key, path string
	operator  corev1.NodeSelectorOperator
	values    []string
	// alone is true for an expression that is the only one of its term: without it, the term is dropped with it.
	alone bool
	// selector is true for an entry of the nodeSelector.
	selector bool
}

// selections are all things that a pod requires of labels.
func selections(pod *corev1.Pod) []selected {
	var out []selected
	for _, k := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		out = append(out, selected{
			key: k, path: pointer("spec", "nodeSelector", k), operator: corev1.NodeSelectorOpIn, values: []string{pod.Spec.NodeSelector[k]},
			selector: true,
		})
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return out
	}
	for i, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for j, x := range t.MatchExpressions {
			out = append(out, selected{
				key: x.Key, operator: x.Operator, values: x.Values, alone: len(t.MatchExpressions) == 1,
				path: pointer("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution",
					"nodeSelectorTerms", i, "matchExpressions", j),
			})
		}
	}
	return out
}

// selection proposes changes of what the pod requires of labels.
func (g *generator) selection() {
	known := g.words.keys()
	for _, s := range selections(g.pod) {
		if g.words[s.key] == nil {
			if near := nearest(s.key, known); near != "" && near != s.key {
				g.rename(s, near)
			}
		}
		for i, value := range s.values {
			if g.words[s.key] == nil || g.words.has(s.key, value) || s.operator != corev1.NodeSelectorOpIn {
				continue
			}
			if near := nearest(value, g.words.values(s.key)); near != "" {
				g.correct(s, i, near)
			}
		}
		g.toVolumeZone(s)
		if !hardware(s.key) {
			g.drop(s)
		}
		g.labelPool(s)
	}
}

// rename corrects the key of a label.
func (g *generator) rename(s selected, near string) {
	summary := fmt.Sprintf("In %s, correct the label %s to %s.", g.workload, s.key, near)
	if s.selector {
		g.add(summary, corrects, renamed(g.editPod(
			Operation{Op: "remove", Path: s.path},
			Operation{Op: "add", Path: pointer("spec", "nodeSelector", near), Value: s.values[0]},
		), g.workload.prefix+"/spec/nodeSelector"))
		return
	}
	g.add(summary, corrects, g.editPod(Operation{Op: "replace", Path: s.path + "/key", Value: near}))
}

// renamed counts the removal of a key and the addition of another, which come first in the patch, as one change of the field
// that has the keys.
func renamed(e edit, field string) edit {
	last := func(op Operation) string { parts := segments(op.Path); return parts[len(parts)-1] }
	e.Fields = []FieldChange{{
		Field: fieldPath(field), Old: last(e.Patch[0]) + ": " + e.Fields[0].Old, New: last(e.Patch[1]) + ": " + e.Fields[1].New,
	}}
	return e
}

// correct replaces a value of a label.
func (g *generator) correct(s selected, i int, value string) {
	path := s.path
	if !s.selector {
		path += pointer("values", i)
	}
	g.add(fmt.Sprintf("In %s, correct %s: %s to %s.", g.workload, s.key, s.values[i], value), corrects,
		g.editPod(Operation{Op: "replace", Path: path, Value: value}))
}

// toVolumeZone replaces a zone by that of the pod's volume.
func (g *generator) toVolumeZone(s selected) {
	if s.key != corev1.LabelTopologyZone || s.operator != corev1.NodeSelectorOpIn {
		return
	}
	for _, zone := range g.podVolumeZones() {
		if slices.Contains(s.values, zone) {
			continue
		}
		op := Operation{Op: "add", Path: s.path + "/values/-", Value: zone}
		if s.selector {
			op = Operation{Op: "replace", Path: s.path, Value: zone}
		}
		g.add(fmt.Sprintf("In %s, select the zone of its volume, %s.", g.workload, zone), permits, g.editPod(op))
	}
}

// podVolumeZones are the zones of the pod's volumes.
func (g *generator) podVolumeZones() (zones []string) {
	for i := range g.pod.Spec.Volumes {
		if v := g.pod.Spec.Volumes[i].PersistentVolumeClaim; v != nil {
			zones = append(zones, g.volumeZones(v.ClaimName)...)
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}

// drop removes a requirement. A term without expressions matches nothing, so the last expression goes with its term, and the
// last term with the affinity.
func (g *generator) drop(s selected) {
	path := s.path
	if s.alone {
		path = path[:strings.LastIndex(path, "/matchExpressions")]
		required := g.pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		if len(required.NodeSelectorTerms) == 1 {
			path = path[:strings.LastIndex(path, "/nodeSelectorTerms")]
		}
	}
	g.add(fmt.Sprintf("In %s, drop the requirement on %s.", g.workload, wording.LabelWord(s.key)), givesUp,
		g.editPod(Operation{Op: "remove", Path: path}))
}

// labelPool adds a label to a NodePool, if only NodePools can define it and none does.
func (g *generator) labelPool(s selected) {
	if s.operator != corev1.NodeSelectorOpIn || g.words[s.key] != nil || g.view.Snapshot.Labels.IsRestricted(s.key) ||
		g.view.Snapshot.Labels.WellKnown[s.key] || nearest(s.key, g.words.keys()) != "" {
		return
	}
	for i := range g.lab.base.Pools {
		pool := g.lab.base.Pools[i].NodePool
		value := any(s.values[0])
		op := Operation{Op: "add", Path: pointer("spec", "template", "metadata", "labels", s.key), Value: value}
		if len(pool.Spec.Template.Labels) == 0 {
			labels := map[string]any{s.key: value}
			op = Operation{Op: "add", Path: pointer("spec", "template", "metadata"), Value: map[string]any{"labels": labels}}
			if len(pool.Spec.Template.Annotations) > 0 {
				op = Operation{Op: "add", Path: pointer("spec", "template", "metadata", "labels"), Value: map[string]any{s.key: value}}
			}
		}
		g.add(fmt.Sprintf("In NodePool %s, give its nodes the label %s=%s.", pool.Name, s.key, s.values[0]), poolPermits, g.editPool(pool, op))
	}
}

// tolerations proposes to tolerate the taints of each pool.
func (g *generator) tolerations() {
	for i := range g.lab.base.Pools {
		pool := g.lab.base.Pools[i].NodePool
		if !g.codes(pool.Name)["Taints"] {
			continue
		}
		var missing []corev1.Toleration
		var words []string
		for k := range pool.Spec.Template.Spec.Taints {
			taint := &pool.Spec.Template.Spec.Taints[k]
			if taint.Effect == corev1.TaintEffectPreferNoSchedule || snapshot.Tolerates(g.pod.Spec.Tolerations, taint) {
				continue
			}
			missing = append(missing, toleration(taint))
			words = append(words, taint.ToString())
			g.correctToleration(pool.Name, taint)
		}
		if len(missing) == 0 {
			continue
		}
		var patch []Operation
		if len(g.pod.Spec.Tolerations) == 0 {
			patch = []Operation{{Op: "add", Path: "/spec/tolerations", Value: missing}}
		} else {
			for _, t := range missing {
				patch = append(patch, Operation{Op: "add", Path: "/spec/tolerations/-", Value: t})
			}
		}
		e := g.editPod(patch...)
		if e.Kind == "Pod" { // of a pod's tolerations, the API server allows additions
			e.Action, e.Command = Patch, patchCommand(e.Object, e.Edit.Patch)
		}
		e.Fields = e.Fields[:1]
		e.Fields[0].New = withAll(e.Fields[0].Old, missing)
		g.add(fmt.Sprintf("In %s, tolerate the taint %s of NodePool %s.", g.workload, strings.Join(words, ", "), pool.Name), permits, e)
	}
}

// withAll is a JSON list with more values.
func withAll(list string, values []corev1.Toleration) string {
	for _, v := range values {
		list = withAppended(list, v)
	}
	return list
}

func toleration(t *corev1.Taint) corev1.Toleration {
	out := corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpExists, Effect: t.Effect}
	if t.Value != "" {
		out.Operator, out.Value = corev1.TolerationOpEqual, t.Value
	}
	return out
}

// correctToleration corrects a toleration that nearly suits a taint.
func (g *generator) correctToleration(pool string, taint *corev1.Taint) {
	for i, t := range g.pod.Spec.Tolerations {
		if t.Key != taint.Key && nearest(t.Key, []string{taint.Key}) == "" {
			continue
		}
		want := toleration(taint)
		g.add(fmt.Sprintf("In %s, correct the toleration of %s to the taint %s of NodePool %s.", g.workload, t.Key, taint.ToString(), pool),
			corrects, g.editPod(Operation{Op: "replace", Path: pointer("spec", "tolerations", i), Value: want}))
	}
}
