package recorder

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// configRecord are the facts that change with the settings only.
type configRecord struct {
	PreferencePolicy string                            `json:"preferencePolicy"`
	PreferenceCost   float64                           `json:"preferenceCost"`
	MinValuesPolicy  string                            `json:"minValuesPolicy"`
	DefaultSpread    []corev1.TopologySpreadConstraint `json:"defaultSpread,omitempty"`
	NodeCost         float64                           `json:"nodeCost,omitempty"`
	// Profiles are those of kube-scheduler that change rules of pods.
	Profiles          map[string]snapshot.SchedulerProfile `json:"schedulerProfiles,omitempty"`
	WellKnown         map[string]bool                      `json:"wellKnown"`
	RestrictedDomains []string                             `json:"restrictedDomains,omitempty"`
	Normalized        map[string]string                    `json:"normalized,omitempty"`
	KnownValues       map[string][]string                  `json:"knownValues,omitempty"`
	SetOnJoin         []string                             `json:"setOnJoin,omitempty"`
	MaySetOnJoin      []string                             `json:"maySetOnJoin,omitempty"`
	ReservationLabel  string                               `json:"reservationLabel,omitempty"`
	NominationWindow  time.Duration                        `json:"nominationWindow"`
	TaintGracePeriod  time.Duration                        `json:"taintGracePeriod,omitempty"`
	// Repair is nil if node repair is off.
	Repair []karpv1.RepairPolicy `json:"repair,omitzero"`
	// LifecycleConditions is the feature gate NodeLifecycleConditions.
	LifecycleConditions bool `json:"lifecycleConditions,omitempty"`
	// Devices is true if the objects of dynamic resource allocation are read.
	Devices bool `json:"devices,omitempty"`
	// PodGroups is true if the API server serves PodGroups.
	PodGroups bool `json:"podGroups,omitempty"`
}

// marksRecord are the facts that change with what the process does.
type marksRecord struct {
	MarkedForDeletion map[types.UID]bool     `json:"markedForDeletion,omitempty"`
	Disrupting        map[types.UID][]string `json:"disrupting,omitempty"`
	Nominated         map[string]time.Time   `json:"nominated,omitempty"`
	// BufferPods is nil before the first plan, which differs from empty.
	BufferPods map[string]int `json:"bufferPods,omitzero"`
}

// bufferRecord is a cluster.Buffer.
type bufferRecord struct {
	Buffer     *bufferv1.CapacityBuffer `json:"buffer"`
	Template   *corev1.PodTemplateSpec  `json:"template,omitempty"`
	Generation *int64                   `json:"generation,omitempty"`
	Scalable   *int32                   `json:"scalable,omitempty"`
}

func recordConfig(o *cluster.Objects, f *cluster.Facts) configRecord {
	c := configRecord{
		PreferencePolicy: string(f.Settings.PreferencePolicy), PreferenceCost: f.Settings.PreferenceCost,
		MinValuesPolicy: string(f.Settings.MinValuesPolicy), DefaultSpread: f.Settings.DefaultSpread, NodeCost: f.Settings.NodeCost,
		Profiles:  f.Settings.Profiles,
		WellKnown: f.Labels.WellKnown, RestrictedDomains: f.Labels.RestrictedDomains, Normalized: f.Labels.Normalized,
		KnownValues: f.Labels.KnownValues, SetOnJoin: f.Labels.SetOnJoin, MaySetOnJoin: f.Labels.MaySetOnJoin,
		ReservationLabel: f.Labels.ReservationID, NominationWindow: f.NominationWindow, TaintGracePeriod: f.TaintGracePeriod,
		LifecycleConditions: f.LifecycleConditions, Devices: o.Devices != nil, PodGroups: o.PodGroups != nil,
	}
	if f.Repair != nil {
		c.Repair = f.Repair.List()
	}
	return c
}

func (c *configRecord) restore(f *cluster.Facts) error {
	f.Settings = snapshot.Settings{
		PreferencePolicy: snapshot.PreferencePolicy(c.PreferencePolicy), PreferenceCost: c.PreferenceCost,
		MinValuesPolicy: snapshot.MinValuesPolicy(c.MinValuesPolicy), DefaultSpread: c.DefaultSpread, NodeCost: c.NodeCost,
		Profiles: c.Profiles,
	}
	f.Labels = requirement.Labels{Vocabulary: karpv1.Vocabulary{
		WellKnown: c.WellKnown, RestrictedDomains: c.RestrictedDomains, Normalized: c.Normalized, KnownValues: c.KnownValues,
		SetOnJoin: c.SetOnJoin, MaySetOnJoin: c.MaySetOnJoin, ReservationID: c.ReservationLabel,
	}}
	f.NominationWindow, f.TaintGracePeriod, f.LifecycleConditions = c.NominationWindow, c.TaintGracePeriod, c.LifecycleConditions
	if c.Repair == nil {
		return nil
	}
	var err error
	f.Repair, err = repair.Compile(c.Repair)
	return err
}

func recordMarks(f *cluster.Facts) marksRecord {
	return marksRecord{f.MarkedForDeletion, f.Disrupting, f.Nominated, f.BufferPods}
}

func (m *marksRecord) restore(f *cluster.Facts) {
	f.MarkedForDeletion, f.Disrupting, f.Nominated, f.BufferPods = m.MarkedForDeletion, m.Disrupting, m.Nominated, m.BufferPods
}

// recordBuffers reduces buffers as objects are.
func recordBuffers(buffers []cluster.Buffer) []bufferRecord {
	out := make([]bufferRecord, 0, len(buffers))
	for _, b := range buffers {
		r := bufferRecord{Buffer: b.DeepCopy(), Generation: b.Shape.Generation, Scalable: b.Scalable}
		manifest.Scrub(r.Buffer)
		if b.Template != nil {
			r.Template = b.Template.DeepCopy()
			manifest.ScrubTemplate(r.Template)
		}
		out = append(out, r)
	}
	return out
}

func restoreBuffers(records []bufferRecord) []cluster.Buffer {
	out := make([]cluster.Buffer, 0, len(records))
	for _, r := range records {
		if r.Buffer == nil || r.Template == nil || r.Buffer.Status.Replicas == nil {
			continue // not written by this package
		}
		out = append(out, cluster.Buffer{
			CapacityBuffer: r.Buffer, Shape: cluster.Shape{Template: r.Template, Generation: r.Generation, Scalable: r.Scalable},
		})
	}
	return out
}
