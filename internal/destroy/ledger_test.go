package destroy

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// nodes are so many nodes with 4 cores and 16 GiB each.
func nodes(n int) Size { return Size{n, int64(n) * 4000, int64(n) << 34} }

// take enters deletions one by one until one exceeds a limit, at the same time, and returns how many there were room for.
func (l *Ledger) takeAll(n int, c charge, limits map[string]Limit, fleet Fleet, now time.Time) (taken int, message string) {
	for range n {
		if _, p, is := l.exceeded(c, limits, fleet, now); is {
			return taken, p.Message
		}
		l.add(c, fleet, now)
		taken++
	}
	return taken, ""
}

func TestRoom(t *testing.T) {
	both := func(l Limit) map[string]Limit { return map[string]Limit{Cluster: l, "general": l} }
	one := charge{pool: "general", kind: Planned, size: nodes(1)}
	defaults := DefaultLimits()
	for _, tt := range []struct {
		name   string
		limits map[string]Limit
		fleet  Fleet
		charge charge
		wanted int
		want   int
		says   string
	}{
		{
			"a fleet of 100 goes once in a minute", both(defaults[Planned]),
			Fleet{Cluster: nodes(100), "general": nodes(100)},
			one, 200, 100,
			"101 of 100 nodes of NodePool \"general\" would be deleted within a minute",
		},
		{"30 nodes of a small cluster", both(defaults[Planned]), Fleet{Cluster: nodes(3), "general": nodes(3)}, one, 100, 30, "31 nodes"},
		{
			"a quarter of what looks broken in a minute", both(defaults[Fault]),
			Fleet{Cluster: nodes(100), "general": nodes(100)},
			charge{pool: "general", kind: Fault, size: nodes(1)},
			100, 25, "26 of 100",
		},
		{
			"all that expires, four times", both(defaults[Expired]),
			Fleet{Cluster: nodes(1000), "general": nodes(1000)},
			charge{pool: "general", kind: Expired, size: nodes(1)},
			5000, 4000, "400%",
		},
		{"a share of a person's choice", both(shared(Limit{}, 0.2)), Fleet{Cluster: nodes(20), "general": nodes(20)}, one, 20, 4, "the limit is 20%"},
		{
			"a pool's own share counts for the pool",
			map[string]Limit{Cluster: defaults[Planned], "general": shared(Limit{}, 0.1)},
			Fleet{Cluster: nodes(100), "general": nodes(10)},
			one, 10, 1, `of NodePool "general"`,
		},
		{"one node of a pool of one", both(shared(Limit{}, 0.2)), Fleet{Cluster: nodes(1), "general": nodes(1)}, one, 5, 1, "2 nodes, 200%"},
		{"without limits", nil, Fleet{}, one, 500, 500, ""},
		{"nothing known of the fleet", both(shared(Limit{}, 0.5)), Fleet{}, one, 5, 1, "2 nodes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var l Ledger
			taken, message := l.takeAll(tt.wanted, tt.charge, tt.limits, tt.fleet, noon)
			if taken != tt.want || !strings.Contains(message, tt.says) {
				t.Errorf("room for %d, want %d; %q, want %q", taken, tt.want, message, tt.says)
			}
		})
	}
}

// A fleet that shrinks to nothing is never more than all of it, however small the rest is.
func TestAFleetMayShrinkToNothing(t *testing.T) {
	var l Ledger
	limits := map[string]Limit{Cluster: {PerHour: 1, PerMinute: unlimited}}
	for left := 200; left > 0; left-- {
		now := noon.Add(time.Duration(200-left) * 10 * time.Second)
		if taken, message := l.takeAll(1, charge{pool: "general", kind: Planned, size: nodes(1)}, limits, Fleet{Cluster: nodes(left)}, now); taken != 1 {
			t.Fatalf("%d nodes are left: %s", left, message)
		}
	}
}

func TestWhatWasDeletedAnHourAgoCountsNoLonger(t *testing.T) {
	var l Ledger
	limits, fleet := map[string]Limit{Cluster: shared(Limit{}, 0.5)}, Fleet{Cluster: nodes(10)}
	c := charge{pool: "general", kind: Planned, size: nodes(1)}
	if taken, _ := l.takeAll(10, c, limits, fleet, noon); taken != 5 {
		t.Fatalf("room for %d, want 5", taken)
	}
	for after, want := range map[time.Duration]int{59 * time.Minute: 0, 62 * time.Minute: 5} {
		later := l.clone()
		if taken, _ := later.takeAll(10, c, limits, fleet, noon.Add(after)); taken != want {
			t.Errorf("%v later there is room for %d, want %d", after, taken, want)
		}
	}
	l.add(c, fleet, noon.Add(2*time.Hour))
	if len(l.Buckets) != 1 {
		t.Errorf("%d buckets are kept, want that of the last hour", len(l.Buckets))
	}
}

func TestKindsAndPoolsCountApart(t *testing.T) {
	var l Ledger
	half := shared(Limit{}, 0.5)
	fleet := Fleet{Cluster: nodes(40), "a": nodes(10), "b": nodes(30)}
	of := func(pool string) map[string]Limit { return map[string]Limit{Cluster: half, pool: half} }
	for n, tt := range []struct {
		charge charge
		want   int
	}{
		{charge{pool: "a", kind: Planned, size: nodes(1)}, 5},
		{charge{pool: "a", kind: Planned, size: nodes(1)}, 0},
		{charge{pool: "a", kind: Fault, size: nodes(1)}, 5},
		{charge{pool: "b", kind: Planned, size: nodes(1)}, 15},
		{charge{pool: "b", kind: Fault, size: nodes(1)}, 15},
	} {
		if taken, message := l.takeAll(100, tt.charge, of(tt.charge.pool), fleet, noon); taken != tt.want {
			t.Errorf("%d: room for %d %s of pool %s, want %d (%s)", n, taken, tt.charge.kind, tt.charge.pool, tt.want, message)
		}
	}
}

func TestResumeIsByANewValueOfTheAnnotation(t *testing.T) {
	var l Ledger
	l.add(charge{pool: "a", kind: Planned, size: nodes(1)}, Fleet{}, noon)
	l.add(charge{pool: "b", kind: Planned, size: nodes(1)}, Fleet{}, noon)
	l.pause("a", Pause{Since: noon, Kind: Planned}, map[string]string{"a": "from Git", "b": ""})
	for _, value := range []string{"", "from Git"} {
		if l.resume("a", value) {
			t.Errorf("%q resumes, though it is no new value", value)
		}
	}
	if l.resume("b", "now") {
		t.Error("another pool's annotation resumes")
	}
	if !l.resume("a", "now") || len(l.Pauses) != 0 || len(l.Buckets) != 1 || l.Buckets[0].Pool != "b" {
		t.Errorf("after resuming: %+v", l)
	}
	l.pause(Cluster, Pause{Since: noon, Kind: Planned}, map[string]string{"a": "now"})
	if l.resume("a", "now") {
		t.Error("the value that resumed the first pause resumes the second")
	}
	if l.resume("a", "from Git") {
		t.Error("GitOps resumes: it has set again what a person had changed to resume the first pause")
	}
	if !l.resume("b", "later") || len(l.Pauses) != 0 || len(l.Buckets) != 0 {
		t.Errorf("after resuming the cluster: %+v", l)
	}
}

func TestLimits(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "",
		"off":                  "",
		"planned=50%":          "",
		"planned=50%,fault=5%": "",
		" expired = 20%":       "is not KIND=SHARE%",
		"planned=0%":           "is not above 0%",
		"planned=-1%":          "is not above 0%",
		"planned=NaN%":         "is not above 0%",
		"planned=Inf%":         "at most 10000%",
		"planned=1e9%":         "at most 10000%",
		"planned=50":           "is not a share such as 20%",
		"interrupted=50%":      "with the kind planned, fault or expired",
		"50%":                  "is not KIND=SHARE%",
		"planned=50%,":         "is not KIND=SHARE%",
	} {
		limits, err := ParseLimits(text)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if err == nil && text != "off" && limits[Fault].PerHour == 0 {
			t.Errorf("%q: faults have no limit", text)
		}
	}
	limits, err := ParseLimits("planned=50%")
	if err != nil || limits[Planned].PerHour != 0.5 || limits[Planned].NodesPerHour != 1 || limits[Fault] != DefaultLimits()[Fault] {
		t.Errorf("%+v, %v", limits, err)
	}
}

func TestTheLedgerMergesWhatIsDeletedInAMinute(t *testing.T) {
	var l Ledger
	for n := range 5000 {
		l.add(charge{pool: fmt.Sprint("pool-", n%4), kind: Planned, size: nodes(1)}, Fleet{}, noon.Add(time.Duration(n)*time.Second/100))
	}
	if len(l.Buckets) != 4 {
		t.Errorf("%d buckets, want 4", len(l.Buckets))
	}
	if got := l.Buckets[0].Deleted; got != nodes(1250) {
		t.Errorf("%+v", got)
	}
	if s := (Size{Nodes: 1}).share(Size{}); math.IsNaN(s) || math.IsInf(s, 0) {
		t.Errorf("share of nothing: %v", s)
	}
}

// A clock that was a year ahead for a minute must not keep the budget used up for a year; one that steps back by minutes forgets nothing.
func TestAClockThatStepsBack(t *testing.T) {
	limits, fleet := map[string]Limit{Cluster: shared(Limit{}, 0.5)}, Fleet{Cluster: nodes(10)}
	c := charge{pool: "general", kind: Planned, size: nodes(1)}
	for step, want := range map[time.Duration]int{365 * 24 * time.Hour: 5, 10 * time.Minute: 0} {
		var l Ledger
		l.takeAll(5, c, limits, fleet, noon.Add(step))
		if taken, message := l.takeAll(5, c, limits, fleet, noon); taken != want {
			t.Errorf("after a step back by %v there is room for %d, want %d (%s)", step, taken, want, message)
		}
	}
}

// A ConfigMap holds up to 1 MiB: a cluster with many NodePools must not stop deleting since the ledger is longer.
func TestTheLedgerOfManyNodePoolsFitsIntoAConfigMap(t *testing.T) {
	const pools, minutes = 100, 60
	var l Ledger
	fleet := Fleet{Cluster: nodes(pools)}
	for minute := range minutes {
		for pool := range pools {
			name := fmt.Sprintf("a-nodepool-with-a-long-name-%03d", pool)
			l.add(charge{pool: name, kind: Expired, size: nodes(1)}, fleet, noon.Add(time.Duration(minute)*time.Minute))
		}
	}
	text, err := json.Marshal(l)
	if err != nil || len(text) > 1<<20-1<<16 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	now, total, latest := noon.Add((minutes-1)*time.Minute), Size{}, 0
	for _, b := range l.Buckets {
		total = total.plus(b.Deleted)
		if b.Minute == now.Unix()/60 {
			latest += b.Deleted.Nodes
		}
	}
	if total != nodes(pools*minutes) || latest != pools {
		t.Errorf("%d nodes are counted, %d of them in the latest minute; want %d and %d", total.Nodes, latest, pools*minutes, pools)
	}
}
