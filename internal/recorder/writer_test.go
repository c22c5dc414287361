package recorder

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// directWriter writes parts without a Recorder to a disk that may fail.
type directWriter struct {
	*writer
	disk    *failing
	world   *testWorld
	tracker *tracker
}

func newDirectWriter(t *testing.T) *directWriter {
	t.Helper()
	w, err := newWriter(&Config{Size: 8 << 20, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	d := &directWriter{w, &failing{memory: memory{data: []byte(fileMagic)}}, newTestWorld(1, 5, 1), newTracker()}
	w.ring.file = d.disk
	return d
}

// part writes a part of a pass; that of number 0 has what the pass saw.
func (d *directWriter) part(id string, number int, calls ...call) error {
	p := &part{pass: passLine{ID: id, Kind: Provisioning, Now: d.world.facts.Now}, number: number, calls: calls}
	if number == 0 {
		p.objects, p.facts = &d.world.objects, &d.world.facts
		p.changes = d.tracker.diff(&seen{Objects: p.objects})
	}
	_, err := d.write(&job{part: p})
	return err
}

// calls are the recorded calls of each pass.
func (d *directWriter) calls(t *testing.T) map[string][]CallRecord {
	t.Helper()
	rec, err := read(d.disk, int64(len(d.disk.data)))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]CallRecord{}
	if err := rec.Passes(Range{}, func(p *PassRecord) error { out[p.ID] = p.Calls; return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

// A result that equals the last one is left out. If the disk has lost that one, the record would name another.
func TestNoPassRefersToALostPart(t *testing.T) {
	d := newDirectWriter(t)
	plan := func(node string) call {
		return call{CallSolve, SolveInput{}, PlanRecord{Placements: []PlacementRecord{{Node: node}}}}
	}
	err := d.part("p-1", 0, plan("a"))
	d.disk.fail = true
	lost := d.part("p-1", 1, plan("b"))
	d.disk.fail = false
	if err != nil || lost == nil {
		t.Fatalf("%v, %v", err, lost)
	}
	if err := d.part("p-2", 0, plan("b")); !errors.Is(err, errBroken) {
		t.Errorf("a pass after the lost part: %v", err)
	}
	d.tracker.forget()
	if err := errors.Join(d.part("p-3", 0, plan("b")), d.part("p-4", 0, plan("b"))); err != nil {
		t.Fatal(err)
	}
	got := d.calls(t)
	for id, node := range map[string]string{"p-1": "a", "p-3": "b", "p-4": "b"} {
		var out PlanRecord
		if len(got[id]) != 1 || json.Unmarshal(got[id][0].Out, &out) != nil || len(out.Placements) != 1 || out.Placements[0].Node != node {
			t.Errorf("pass %s: %v", id, got[id])
		}
	}
}

type panicking struct{}

func (panicking) MarshalJSON() ([]byte, error) { panic("boom") }

func TestAPanicOfTheEncoderIsAnError(t *testing.T) {
	d := newDirectWriter(t)
	if err := d.part("p-1", 0, call{CallPass, panicking{}, nil}); !errors.Is(err, errDefect) {
		t.Errorf("%v", err)
	}
	d.tracker.forget()
	if err := d.part("p-2", 0, call{CallPass, PassInput{}, PassResult{}}); err != nil {
		t.Error(err)
	}
	if got := d.calls(t); len(got) != 1 || len(got["p-2"]) != 1 {
		t.Errorf("%v", got)
	}
}

func TestStepsDoNotProlongThePauseAfterAnError(t *testing.T) {
	cfg := testConfig(t, MinSize)
	cfg.Path = ""
	r := newTestRecorder(t, cfg)
	defer r.Close()
	r.writer.ring.file = &failing{fail: true}
	for range 5 {
		r.writeSteps(Step{Decision: "p-1-0", What: StepLaunched})
	}
	if r.failures != 1 {
		t.Errorf("the disk was tried %d times within the pause", r.failures)
	}
}

// Lists of instance types change in many ways: each pass must be read with the types that it saw.
func TestEachPassIsReadWithTheTypesThatItSaw(t *testing.T) {
	d := newDirectWriter(t)
	first := d.world.objects.Pools[0]
	list := first.InstanceTypes
	dearer := func(at int) []*catalog.InstanceType {
		out := slices.Clone(list)
		changed := *out[at]
		changed.Offerings = slices.Clone(changed.Offerings)
		changed.Offerings[0].Price += 1
		out[at] = &changed
		return out
	}
	anew := slices.Clone(list)
	for i, it := range anew {
		c := *it
		anew[i] = &c
	}
	reversed := slices.Clone(list)
	slices.Reverse(reversed)
	second := *first.NodePool
	second.Name, second.UID = "second", "second"
	want := map[string][2][]*catalog.InstanceType{}
	for i, lists := range [][2][]*catalog.InstanceType{
		{list, list},
		{anew, list},
		{dearer(0), list},
		{dearer(1), dearer(1)},
		{list[1:], anew},
		{reversed, reversed[:2]},
		{nil, list},
		{list, nil},
		{{}, dearer(0)},
		{list, list},
	} {
		id := fmt.Sprintf("p-%d", i)
		want[id] = lists
		d.world.objects.Pools = []cluster.Pool{
			{NodePool: first.NodePool, InstanceTypes: lists[0]}, {NodePool: &second, InstanceTypes: lists[1]},
		}
		if err := d.part(id, 0); err != nil {
			t.Fatal(err)
		}
	}
	rec, err := read(d.disk, int64(len(d.disk.data)))
	if err != nil {
		t.Fatal(err)
	}
	err = rec.Passes(Range{}, func(p *PassRecord) error {
		for _, pool := range p.Objects.Pools {
			lists := want[p.ID]
			expected := lists[0]
			if pool.Name == "second" {
				expected = lists[1]
			}
			if got := pool.InstanceTypes; typesText(got) != typesText(expected) || (got == nil) != (expected == nil) {
				t.Errorf("pass %s, pool %s: %s, want %s", p.ID, pool.Name, typesText(got), typesText(expected))
			}
		}
		delete(want, p.ID)
		return nil
	})
	if err != nil || len(want) > 0 {
		t.Errorf("%d passes are missing: %v", len(want), err)
	}
}

func typesText(list []*catalog.InstanceType) string {
	out := ""
	for _, it := range list {
		out += fmt.Sprintf("%s at $%.4f, ", it.Name, it.Offerings[0].Price)
	}
	return out
}
