package offline

import (
	"slices"
	"strings"
	"testing"
)

func typeNamed(t *testing.T, c *Catalog, name string) Type {
	t.Helper()
	typ, ok := c.Type(name)
	if !ok {
		t.Fatalf("no %s", name)
	}
	return typ
}

func TestI7ie48xlargeTakes737PodsOnOneCard(t *testing.T) {
	typ := typeNamed(t, load(t), "i7ie.48xlarge")
	if want := []NetworkCard{{Index: 0, MaxENIs: 15}}; !slices.Equal(typ.NetworkCards, want) {
		t.Errorf("cards %v, want %v", typ.NetworkCards, want)
	}
	if pods := typ.NetworkCards[0].MaxENIs*(typ.IPv4PerENI-1) + 2; pods != 737 {
		t.Errorf("%d pods, want 737", pods)
	}
}

func TestG5ReportsTheMemoryThatTheDriverLeaves(t *testing.T) {
	typ := typeNamed(t, load(t), "g5.12xlarge")
	if want := []GPU{{Name: "A10G", Manufacturer: "NVIDIA", Count: 4, Logical: 4, MemoryMiB: 22888}}; !slices.Equal(typ.GPUs, want) {
		t.Errorf("GPUs %v, want %v", typ.GPUs, want)
	}
}

func TestAPartOfAGPUIsOneDeviceToPods(t *testing.T) {
	typ := typeNamed(t, load(t), "g6f.large")
	if want := []GPU{{Name: "L4", Manufacturer: "NVIDIA", Count: 0, Logical: 1, MemoryMiB: 2861}}; !slices.Equal(typ.GPUs, want) {
		t.Errorf("GPUs %v, want %v", typ.GPUs, want)
	}
}

func TestTypesWithEFAEnclavesAndSpot(t *testing.T) {
	efa, enclaves, spot := 0, 0, 0
	c := load(t)
	for _, typ := range c.Types() {
		if typ.EFAMax > 0 {
			efa++
		}
		if typ.NitroEnclaves {
			enclaves++
		}
		if slices.Contains(typ.UsageClasses, "spot") {
			spot++
		}
	}
	if efa != 298 || spot != 1332 {
		t.Errorf("%d types with EFA, %d as spot; want 298 and 1332, as EC2 reports", efa, spot)
	}
	if enclaves < 900 {
		t.Errorf("%d types with enclaves", enclaves)
	}
	for name, want := range map[string]bool{"c8i.metal-48xl": true, "p5.48xlarge": true, "m8gn.48xlarge": true, "m5.large": false} {
		if got := typeNamed(t, c, name).EFAMax > 0; got != want {
			t.Errorf("%s has EFA: %v", name, got)
		}
	}
	if n := typeNamed(t, c, "p6-b300.48xlarge"); n.EFAMax != 16 || len(n.NetworkCards) != 17 {
		t.Errorf("p6-b300.48xlarge: %d EFA on %d cards, want 16 on 17", n.EFAMax, len(n.NetworkCards))
	}
}

func TestTypesNoLongerSoldAreGone(t *testing.T) {
	c := load(t)
	for _, typ := range c.Types() {
		for _, gone := range []string{"p2.", "p3.", "f1.", "dl1.", "g3.", "u-9tb1.", "u-12tb1.", "u-18tb1.", "u-24tb1."} {
			if strings.HasPrefix(typ.Name, gone) {
				t.Errorf("%s is still in the catalog", typ.Name)
			}
		}
	}
}

func TestVolumesThatCanBeAttached(t *testing.T) {
	c := load(t)
	for name, want := range map[string]struct {
		volumes int
		limit   string
	}{
		"m6i.2xlarge": {27, "shared"}, "m8i.large": {32, "dedicated"}, "i7ie.48xlarge": {128, "dedicated"}, "inf1.24xlarge": {11, "shared"},
	} {
		typ := typeNamed(t, c, name)
		if typ.EBSAttachments != want.volumes || typ.EBSAttachmentLimit != want.limit {
			t.Errorf("%s: %d volumes (%s), want %v", name, typ.EBSAttachments, typ.EBSAttachmentLimit, want)
		}
	}
}
