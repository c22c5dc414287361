// Package offering measures the offerings of node pools: instance types, availability and prices. It also publishes an
// event when prices are not the current ones of the cloud.
package offering

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

const (
	// interval sets how often offerings are measured, retryInterval how soon after a pool failed: usually its node class
	// is new.
	interval, retryInterval = time.Minute, 10 * time.Second
	// failedEventInterval and disabledEventInterval set how often events about outdated or built-in prices are
	// repeated.
	failedEventInterval, disabledEventInterval = time.Hour, 24 * time.Hour
)

// source lists what a node class can launch, and where prices come from.
type source interface {
	InstanceTypes(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error)
	PriceState() []cloudprovider.PriceState
}

// Loop measures the offerings of all node pools, on the leader.
type Loop struct {
	Client client.Client
	Cloud  source
	// ApplyOverlays applies the NodeOverlays to a pool's types; false while they are not evaluated. Nil applies none.
	ApplyOverlays func(pool *karpv1.NodePool, types []*catalog.InstanceType) ([]*catalog.InstanceType, bool)
	// Reserved adds offerings in capacity reservations, of every type in every zone.
	Reserved  bool
	Collector *Collector
	Events    *event.Recorder
	Log       *slog.Logger
}

// NeedLeaderElection makes sure that only one process measures.
func (l *Loop) NeedLeaderElection() bool { return true }

// Start measures until ctx is done.
func (l *Loop) Start(ctx context.Context) error {
	for {
		all, err := l.measure(ctx)
		if err != nil && ctx.Err() == nil {
			l.Log.Error("measuring instance types", "error", err)
		}
		wait := interval
		if !all {
			wait = retryInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// measure measures once, and reports whether all pools could be measured.
func (l *Loop) measure(ctx context.Context) (all bool, err error) {
	var pools karpv1.NodePoolList
	if err := l.Client.List(ctx, &pools); err != nil {
		return false, err
	}
	all = true
	slices.SortFunc(pools.Items, func(a, b karpv1.NodePool) int { return cmp.Compare(a.Name, b.Name) })
	state := l.Cloud.PriceState()
	view, seen := newMeasurements(l.Reserved), map[**catalog.InstanceType]bool{}
	for i := range pools.Items {
		pool := &pools.Items[i]
		if !awsv1.IsEC2NodeClass(pool.Spec.Template.Spec.NodeClassRef) {
			continue
		}
		l.recordPriceEvents(pool, state)
		types, err := l.types(ctx, pool)
		if err != nil { // the condition of the pool or its class has the reason; other pools are measured nevertheless
			l.Log.Debug("instance types of a node pool are not measured", "NodePool", pool.Name, "error", err)
			all = false
			continue
		}
		if len(types) > 0 && !seen[&types[0]] { // pools of one class share one list
			seen[&types[0]] = true
			view.add(types)
		}
	}
	l.Collector.set(view, state)
	return all, nil
}

func (l *Loop) types(ctx context.Context, pool *karpv1.NodePool) ([]*catalog.InstanceType, error) {
	class := &awsv1.EC2NodeClass{}
	if err := l.Client.Get(ctx, client.ObjectKey{Name: pool.Spec.Template.Spec.NodeClassRef.Name}, class); err != nil {
		return nil, err
	}
	types, err := l.Cloud.InstanceTypes(ctx, class)
	if err != nil || l.ApplyOverlays == nil {
		return types, err
	}
	if laid, known := l.ApplyOverlays(pool, types); known {
		return laid, nil
	}
	return types, nil
}

// builtInMessage is the message of the event PricesBuiltIn.
const builtInMessage = "%s prices are built in%s: %v"

// recordPriceEvents publishes on the pool where its prices come from, if not currently from the cloud.
func (l *Loop) recordPriceEvents(pool *karpv1.NodePool, state []cloudprovider.PriceState) {
	for _, s := range state {
		switch {
		case s.NotReadReason != "":
			l.Events.WarnEvery(disabledEventInterval, pool, "PricesBuiltIn", builtInMessage, s.CapacityType, basis(s), s.NotReadReason)
		case s.BuiltIn():
			l.Events.WarnEvery(failedEventInterval, pool, "PricesBuiltIn", builtInMessage, s.CapacityType, basis(s), s.Err)
		case s.Err != nil:
			l.Events.WarnEvery(
				failedEventInterval,
				pool,
				"PricesOutdated",
				"%s prices are those of %s: %v",
				s.CapacityType,
				s.Read.UTC().Format(time.RFC3339),
				s.Err,
			)
		}
	}
}

// basis is the origin of built-in prices, in parentheses.
func basis(s cloudprovider.PriceState) string {
	if s.Basis == "" {
		return ""
	}
	return " (" + s.Basis + ")"
}

// offeringID identifies an offering.
type offeringID struct{ instanceType, capacityType, zone string }

// offeringState is the state of an offering over all pools.
type offeringState struct {
	available bool
	price     float64 // the lowest of those available, else of all; 0 if unknown
}

// measurements are the measurements over all pools.
type measurements struct {
	reserved bool
	// cpus and bytes are the capacity of a type.
	cpus, bytes map[string]float64
	offerings   map[offeringID]offeringState
}

func newMeasurements(reserved bool) *measurements {
	return &measurements{
		reserved:  reserved,
		cpus:      map[string]float64{},
		bytes:     map[string]float64{},
		offerings: map[offeringID]offeringState{},
	}
}

// add adds the types of one more pool. An offering that any pool can launch counts as available.
func (v *measurements) add(types []*catalog.InstanceType) {
	for _, t := range types {
		v.cpus[t.Name] = t.Capacity.Cpu().AsApproximateFloat64()
		v.bytes[t.Name] = t.Capacity.Memory().AsApproximateFloat64()
		for i := range t.Offerings {
			o := &t.Offerings[i]
			at := offeringID{t.Name, o.CapacityType, o.Zone}
			v.offerings[at] = v.offerings[at].with(o)
			if v.reserved {
				at.capacityType = karpv1.CapacityTypeReserved
				if _, there := v.offerings[at]; !there {
					v.offerings[at] = offeringState{}
				}
			}
		}
	}
}

func (m offeringState) with(o *catalog.Offering) offeringState {
	switch {
	case o.Price <= 0 && !o.Available:
		return m
	case o.Available && !m.available:
		return offeringState{available: true, price: o.Price}
	case o.Available == m.available && (m.price == 0 || o.Price < m.price):
		m.price = o.Price
	}
	return m
}
