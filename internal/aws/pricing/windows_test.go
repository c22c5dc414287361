package pricing

import (
	"errors"
	"math"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
)

func (m market) expectWindows(t *testing.T, instanceType string, onDemand, spot float64) {
	t.Helper()
	q := m.For(offline.Windows)
	if got, ok := q.OnDemand(instanceType); math.Abs(got-onDemand) > 1e-9 || ok != (onDemand > 0) {
		t.Errorf("%s with Windows costs %v (%v), want %v", instanceType, got, ok, onDemand)
	}
	if got, ok := q.Spot(instanceType, "a"); math.Abs(got-spot) > 1e-9 || ok != (spot > 0) {
		t.Errorf("%s with Windows costs %v (%v) as spot, want %v", instanceType, got, ok, spot)
	}
}

func TestWindowsNodesCostWhatWindowsCosts(t *testing.T) {
	m := open("us-east-1", map[string]string{"m5.large": "0.1", "c5.large": "0.09"})
	m.spot.records = append(m.spot.records, quote("c5.large", "a", "0.04"))
	m.expectWindows(t, "m5.large", 0.188, 0.188) // what ships with the program
	m = open("us-east-1", map[string]string{"m5.large": "0.1", "c5.large": "0.09"})
	m.spot.records = append(m.spot.records, quote("c5.large", "a", "0.04"))

	// While no node class needs them, Windows prices are not read.
	if err := m.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m.list.calls != 3 {
		t.Errorf("the Pricing API was called %d times, want 3: a page for each product of Linux", m.list.calls)
	}
	for _, s := range m.State() {
		if s.RefreshDue {
			t.Errorf("nobody needs more, and yet %+v", s)
		}
	}

	// The first Windows node class uses the current Linux price plus the license, until Windows prices are read.
	m.expectWindows(t, "m5.large", 0.1+0.092, 0.03+0.092)
	for _, s := range m.State() {
		if !s.RefreshDue {
			t.Errorf("prices of Windows are due: %+v", s)
		}
	}
	m.list.prices["Windows Shared"] = map[string]string{"m5.large": "0.2"}
	m.spot.records = append(m.spot.records, windows("m5.large", "a", "0.13"))
	version := m.Version()
	if err := m.Refresh(t.Context()); err != nil || m.Version() == version {
		t.Fatalf("%v, version %d", err, m.Version())
	}
	m.expectWindows(t, "m5.large", 0.2, 0.13)
	m.expectWindows(t, "c5.large", 0, 0) // AWS does not offer it with Windows
	m.expect(t, "m5.large", 0.1)
	m.expect(t, "c5.large", 0.09)
	for _, s := range m.State() {
		if s.RefreshDue {
			t.Errorf("everything was read, and yet %+v", s)
		}
	}
}

func TestWindowsWithoutSpotPricesAddsTheLicense(t *testing.T) {
	m := open("us-east-1", map[string]string{"m5.large": "0.1"})
	m.list.prices["Windows Shared"] = map[string]string{"m5.large": "0.2"}
	m.For(offline.Windows)
	if err := m.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.expectWindows(t, "m5.large", 0.2, 0.03+0.092)
	if m.State()[1].RefreshDue {
		t.Error("spot prices of Windows are due again and again")
	}
}

func TestFailedWindowsPricesDoNotStopLinuxPrices(t *testing.T) {
	m := open("us-east-1", map[string]string{"m5.large": "0.1"})
	m.For(offline.Windows)
	version := m.Version()
	if err := m.RefreshOnDemand(t.Context()); err == nil { // the list has none of Windows
		t.Fatal("no error")
	}
	m.expect(t, "m5.large", 0.1)
	m.expectWindows(t, "m5.large", 0.1+0.092, 0.1+0.092)
	if m.Version() == version {
		t.Error("what is planned with stays as it was")
	}
	m.list.err = errors.New("AccessDeniedException")
	if err := m.RefreshOnDemand(t.Context()); err == nil {
		t.Fatal("no error")
	}
}
