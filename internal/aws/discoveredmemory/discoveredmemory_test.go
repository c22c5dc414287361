package discoveredmemory_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/discoveredmemory"
)

func TestObservations(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := discoveredmemory.New(func() time.Time { return now })
	old, other := discoveredmemory.Images(
		[]awsv1.AMI{{ID: "ami-1"}, {ID: "ami-2"}},
	), discoveredmemory.Images(
		[]awsv1.AMI{{ID: "ami-1"}, {ID: "ami-3"}},
	)
	expect := func(when, images, want string) {
		t.Helper()
		got, ok := m.Of("m5.large", images)
		if ok != (want != "") || ok && got.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%s: %s, want %q", when, got.String(), want)
		}
	}
	note := func(memory string) (changed bool) {
		before := m.Version()
		m.Note("m5.large", old, resource.MustParse(memory))
		return m.Version() != before
	}
	expect("before", old, "")
	if !note("7700Mi") || !note("7650Mi") {
		t.Error("a new figure does not show in the version")
	}
	t.Run("two smaller values, then a larger", func(t *testing.T) {
		if note("7800Mi") || note("7650Mi") {
			t.Error("what is known already shows in the version")
		}
		expect("after a larger one", old, "7650Mi")
	})
	t.Run("other images", func(t *testing.T) {
		expect("other images", other, "")
		expect("the order of images does not matter", discoveredmemory.Images([]awsv1.AMI{{ID: "ami-2"}, {ID: "ami-1"}}), "7650Mi")
	})
	m.Note("m5.large", old, resource.Quantity{})
	expect("nothing is no observation", old, "7650Mi")

	now = now.Add(discoveredmemory.TTL - time.Hour)
	note("7650Mi") // makes it last longer
	now = now.Add(2 * time.Hour)
	expect("seen again", old, "7650Mi")
	before := m.Version()
	now = now.Add(discoveredmemory.TTL)
	expect("60 days later", old, "")
	if m.Version() == before {
		t.Error("the end of an observation does not show in the version")
	}
}
