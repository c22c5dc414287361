package bootstrap

import (
	"strings"
	"testing"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// A Renderer gives what Render gives, however often and in whatever order it is queried, and more often than it keeps results.
func TestRendererRendersAsRenderDoes(t *testing.T) {
	var r Renderer
	families := []string{awsv1.AMIFamilyAL2023, awsv1.AMIFamilyBottlerocket, awsv1.AMIFamilyAL2}
	for i := range 4 * maxRendered {
		for _, in := range []Input{
			plain(),
			with(plain(), func(in *Input) { in.MaxPods = int64(1 + i%(maxRendered+3)) }),
			with(plain(), func(in *Input) { in.Labels["a"] = strings.Repeat("x", i%5) }),
			with(plain(), func(in *Input) { in.RAID0 = i%2 == 0 }),
		} {
			family := families[i%len(families)]
			got, err := r.Render(family, in)
			if err != nil {
				t.Fatal(err)
			}
			if want, err := Render(family, in); err != nil || want.Text != got.Text {
				t.Fatalf("render %d: %v, got\n%s\nwant\n%s", i, err, got.Text, want.Text)
			}
		}
	}
	if len(r.rendered) > maxRendered {
		t.Errorf("%d results are kept", len(r.rendered))
	}
}

func TestRendererKeepsNoErrors(t *testing.T) {
	var r Renderer
	in := with(plain(), func(in *Input) { in.Cluster.ServiceCIDR = "" })
	for range 2 {
		if _, err := r.Render(awsv1.AMIFamilyAL2023, in); err == nil {
			t.Fatal("user data without a service CIDR")
		}
	}
	if got := testing.AllocsPerRun(10, func() { _, _ = r.Render(awsv1.AMIFamilyAL2023, plain()) }); got > 100 {
		t.Errorf("%v allocations for what is rendered already, with those of the input", got)
	}
}
