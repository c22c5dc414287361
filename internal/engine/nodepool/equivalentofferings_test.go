package nodepool_test

import (
	"fmt"
	"testing"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// setOf are the offerings of all templates that pods without requirements can use.
func setOf(f *fixture) resources.Bitset {
	var lists []*nodepool.Candidates
	for _, t := range f.All() {
		lists = append(lists, t.Candidates(t.Requirements()))
	}
	return f.OfferingsOf(lists)
}

func TestPoolsThatOfferTheSameHaveAsManyStandInsAsOne(t *testing.T) {
	one := newFixture(nil, Pool("a", types()))
	want := one.Equivalents([]resources.Bitset{setOf(one)})
	if len(want.Representatives) == 0 {
		t.Fatal("nothing is offered")
	}
	var pools []snapshot.Pool
	for i := range 20 {
		pools = append(pools, Pool(fmt.Sprint("team-", i), types()))
	}
	f := newFixture(nil, pools...)
	got := f.Equivalents([]resources.Bitset{setOf(f)})
	if len(got.Representatives) != len(want.Representatives) {
		t.Errorf("20 equal pools have %d stand-ins, one has %d", len(got.Representatives), len(want.Representatives))
	}
	for number := range f.OfferingCount() {
		i := number % one.OfferingCount() // each pool has its own numbers for the same offerings
		if (got.By[number] < 0) != (want.By[i] < 0) || got.By[number] >= 0 && got.By[number] != want.By[i] {
			t.Errorf("%d stands for offering %d, %d for the same of one pool", got.By[number], number, want.By[i])
		}
	}
}

func TestTheCheapestStandsForTheOthers(t *testing.T) {
	list := types()
	for _, it := range list {
		for i := range it.Offerings {
			it.Offerings[i].Price *= 0.5
		}
	}
	f := newFixture(nil, Pool("b", types()), Pool("a", list)) // pools are sorted by name, the last first
	result := f.Equivalents([]resources.Bitset{setOf(f)})
	half := f.OfferingCount() / 2
	for _, s := range result.Representatives {
		if s.Number < half {
			t.Errorf("offering %d of the first pool stands for cheaper ones of the second", s.Number)
		}
	}
	for number, i := range result.By {
		for _, o := range f.All()[0].Types() {
			if k := number - o.FirstOffering(); k >= 0 && k < len(o.Offerings) && i >= 0 && result.Representatives[i].Price > f.NodePrice(o.Offerings[k].Price) {
				t.Errorf("offering %d costs less than the one that stands for it", number)
			}
		}
	}
}

func TestOfferingsInOtherSetsAreNotAlike(t *testing.T) {
	f := newFixture(nil, Pool("a", types()))
	all := setOf(f)
	var first resources.Bitset
	for number := range f.OfferingCount() {
		if all.Has(number) {
			first.Add(number)
			break
		}
	}
	result := f.Equivalents([]resources.Bitset{all, first})
	for number, i := range result.By {
		if i < 0 {
			continue
		}
		if both := result.Representatives[i].Sets == 3; both != first.Has(number) {
			t.Errorf("offering %d: %b are the sets of the one that stands for it", number, result.Representatives[i].Sets)
		}
	}
	if again := f.Equivalents([]resources.Bitset{all, first}); again != result {
		t.Error("the same sets are sorted again")
	}
	if f.Equivalents([]resources.Bitset{all}) == result {
		t.Error("other sets have the same result")
	}
}
