package pricefile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestPricesOfAFile(t *testing.T) {
	p, err := Decode([]byte(`{"onDemand": {"a": 0.5, "b": 1}, "spot": {"a": 0.1, "c": {"z1": 0.2, "z2": 3e-1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		spot, zone string
		want       float64
	}{{"a", "z1", 0.1}, {"a", "z9", 0.1}, {"c", "z1", 0.2}, {"c", "z2", 0.3}} {
		if got, known := p.Spot(c.spot, c.zone); !known || got != c.want {
			t.Errorf("spot price of %s in %s: %v (%v), want %v", c.spot, c.zone, got, known, c.want)
		}
	}
	if got, known := p.OnDemand("a"); !known || got != 0.5 {
		t.Errorf("on-demand price of a: %v (%v)", got, known)
	}
	for _, unknown := range []func() (float64, bool){
		func() (float64, bool) { return p.OnDemand("c") },
		func() (float64, bool) { return p.Spot("c", "z3") },
		func() (float64, bool) { return p.Spot("b", "z1") },
	} {
		if got, known := unknown(); known {
			t.Errorf("a price that the file lacks: %v", got)
		}
	}
	if got := p.InstanceTypes(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("instance types: %v", got)
	}
	if got := p.Zones(); !slices.Equal(got, []string{"z1", "z2"}) {
		t.Errorf("zones: %v", got)
	}
}

func TestWrongPricesAreErrorsThatNameTheEntry(t *testing.T) {
	for text, want := range map[string]string{
		``:                                "not a file of prices",
		`"a,b"`:                           "it is string, and not an object with onDemand and spot",
		`{"spot": 3}`:                     "spot is number, and not instance types with prices",
		`{"onDemand": ["a"]}`:             "onDemand is array, and not instance types with prices",
		`null`:                            "has no prices",
		`{}`:                              "has no prices",
		`{"onDemand": {}}`:                "has no prices",
		`{"onDemand": {"a": -1}}`:         "onDemand.a: -1 is no price",
		`{"onDemand": {"a": 0}}`:          "onDemand.a: 0 is no price",
		`{"onDemand": {"a": 1e999}}`:      "onDemand.a: 1e999 is no price",
		`{"onDemand": {"a": 1e99}}`:       "onDemand.a: 1e99 is no price",
		`{"onDemand": {"a": "0.1"}}`:      `onDemand.a: "0.1" is no price`,
		`{"onDemand": {"a": [1]}}`:        "onDemand.a: [1] is no price",
		`{"onDemand": {"a": {"z": 1}}}`:   "onDemand.a:",
		`{"onDemand": {"a": null}}`:       "onDemand.a: has no price",
		`{"onDemand": {"": 1}}`:           "onDemand: has a price without an instance type",
		`{"spot": {"": 1}}`:               "spot: has a price without an instance type",
		`{"spot": {"a": {}}}`:             "spot.a: has no price of a zone",
		`{"spot": {"a": {"z": {"y":1}}}}`: "spot.a.z:",
		`{"spot": {"a": {"z": -2}}}`:      "spot.a.z: -2 is no price",
		`{"spot": {"a": {"": 1}}}`:        `spot.a: has a price without a zone`,
		`{"demand": {"a": 1}}`:            "demand",
		`[1, 2]`:                          "not a file of prices",
		`{"spot": {"a": 1}} {}`:           "more than one object",
		"\x00\x01\x02":                    "not a file of prices",
		`{"onDemand": ` + strings.Repeat("[", 1e5): "not a file of prices",
	} {
		if _, err := Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want an error with %q", text, err, want)
		}
	}
}

func TestManyErrorsAreCounted(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, `, "t%d": -1`, i)
	}
	_, err := Decode([]byte(`{"onDemand": {` + b.String()[2:] + "}}"))
	if err == nil || strings.Count(err.Error(), "\n") != shownErrors || !strings.HasSuffix(err.Error(), "and 990 more") {
		t.Errorf("%v", err)
	}
}
