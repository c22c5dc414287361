// Package offering measures what node pools can buy: instance types, whether they can be had, and their prices. It says so, too,
// when the prices are not those of the cloud.
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
	// every is how often is looked, soon how soon again when a pool could not be: its node class is new, as a rule.
	every, soon = time.Minute, 10 * time.Second
	// remindFailed and remindUnasked are how often it is said again where prices come from.
	remindFailed, remindUnasked = time.Hour, 24 * time.Hour
)

// source tells what a node class can launch, and where prices come from.
type source interface {
	InstanceTypes(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error)
	PriceState() []cloudprovider.PriceState
}

// Loop looks at all node pools, on the leader.
type Loop struct {
	Client client.Client
	Cloud  source
	// Lay returns what types become by the NodeOverlays of a pool, false while that is not known. Nil leaves them.
	Lay func(pool *karpv1.NodePool, types []*catalog.InstanceType) ([]*catalog.InstanceType, bool)
	// Reserved shows offerings in capacity reservations, of every type in every zone.
	Reserved  bool
	Collector *Collector
	Events    *event.Recorder
	Log       *slog.Logger
}

// NeedLeaderElection makes sure that only one process measures.
func (l *Loop) NeedLeaderElection() bool { return true }

// Start looks until ctx ends.
func (l *Loop) Start(ctx context.Context) error {
	for {
		all, err := l.look(ctx)
		if err != nil && ctx.Err() == nil {
			l.Log.Error("measuring instance types", "error", err)
		}
		wait := every
		if !all {
			wait = soon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// look measures, and reports whether it could for all pools.
func (l *Loop) look(ctx context.Context) (all bool, err error) {
	var pools karpv1.NodePoolList
	if err := l.Client.List(ctx, &pools); err != nil {
		return false, err
	}
	all = true
	slices.SortFunc(pools.Items, func(a, b karpv1.NodePool) int { return cmp.Compare(a.Name, b.Name) })
	state := l.Cloud.PriceState()
	view, seen := newView(l.Reserved), map[**catalog.InstanceType]bool{}
	for i := range pools.Items {
		pool := &pools.Items[i]
		if !awsv1.IsEC2NodeClass(pool.Spec.Template.Spec.NodeClassRef) {
			continue
		}
		l.remark(pool, state)
		types, err := l.types(ctx, pool)
		if err != nil { // the others are shown nevertheless; the condition of the pool or its class says why
			l.Log.Debug("instance types of a node pool are not measured", "NodePool", pool.Name, "error", err)
			all = false
			continue
		}
		if len(types) > 0 && !seen[&types[0]] { // pools of one class share one list
			seen[&types[0]] = true
			view.add(types)
		}
	}
	l.Collector.show(view, state)
	return all, nil
}

func (l *Loop) types(ctx context.Context, pool *karpv1.NodePool) ([]*catalog.InstanceType, error) {
	class := &awsv1.EC2NodeClass{}
	if err := l.Client.Get(ctx, client.ObjectKey{Name: pool.Spec.Template.Spec.NodeClassRef.Name}, class); err != nil {
		return nil, err
	}
	types, err := l.Cloud.InstanceTypes(ctx, class)
	if err != nil || l.Lay == nil {
		return types, err
	}
	if laid, known := l.Lay(pool, types); known {
		return laid, nil
	}
	return types, nil
}

// builtIn is what the event PricesBuiltIn says.
const builtIn = "%s prices are those that ship with the program%s: %v"

// remark says on the pool where its prices come from, if not from the cloud.
func (l *Loop) remark(pool *karpv1.NodePool, state []cloudprovider.PriceState) {
	for _, s := range state {
		switch {
		case s.Unasked != "":
			l.Events.WarnEvery(remindUnasked, pool, "PricesBuiltIn", builtIn, s.CapacityType, basis(s), s.Unasked)
		case s.BuiltIn():
			l.Events.WarnEvery(remindFailed, pool, "PricesBuiltIn", builtIn, s.CapacityType, basis(s), s.Err)
		case s.Err != nil:
			l.Events.WarnEvery(remindFailed, pool, "PricesOutdated", "%s prices are those of %s: %v", s.CapacityType, s.Read.UTC().Format(time.RFC3339), s.Err)
		}
	}
}

// basis says in parentheses which prices ship with the program.
func basis(s cloudprovider.PriceState) string {
	if s.Basis == "" {
		return ""
	}
	return " (" + s.Basis + ")"
}

// place is where a type is bought.
type place struct{ instanceType, capacityType, zone string }

// market is what is known of a place.
type market struct {
	available bool
	price     float64 // the lowest of those that can be had, else of all; 0 if none is known
}

// view is what all pools see together.
type view struct {
	reserved bool
	// cpus and bytes are the capacity of a type.
	cpus, bytes map[string]float64
	places      map[place]market
}

func newView(reserved bool) *view {
	return &view{reserved: reserved, cpus: map[string]float64{}, bytes: map[string]float64{}, places: map[place]market{}}
}

// add shows what one more pool sees. What any pool can have counts as available.
func (v *view) add(types []*catalog.InstanceType) {
	for _, t := range types {
		v.cpus[t.Name] = t.Capacity.Cpu().AsApproximateFloat64()
		v.bytes[t.Name] = t.Capacity.Memory().AsApproximateFloat64()
		for i := range t.Offerings {
			o := &t.Offerings[i]
			at := place{t.Name, o.CapacityType, o.Zone}
			v.places[at] = v.places[at].with(o)
			if v.reserved {
				at.capacityType = karpv1.CapacityTypeReserved
				if _, there := v.places[at]; !there {
					v.places[at] = market{}
				}
			}
		}
	}
}

func (m market) with(o *catalog.Offering) market {
	switch {
	case o.Price <= 0 && !o.Available:
		return m
	case o.Available && !m.available:
		return market{available: true, price: o.Price}
	case o.Available == m.available && (m.price == 0 || o.Price < m.price):
		m.price = o.Price
	}
	return m
}
