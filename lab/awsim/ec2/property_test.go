package ec2

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestGlobIsARegularExpression: a pattern matches what its translation to a regular expression matches.
func TestGlobIsARegularExpression(t *testing.T) {
	text := rapid.StringOfN(rapid.RuneFrom([]rune(`ab*?\`)), 0, 12, -1)
	rapid.Check(t, func(t *rapid.T) {
		pattern, subject := text.Draw(t, "pattern"), text.Draw(t, "subject")
		var expression strings.Builder
		for i := 0; i < len(pattern); i++ {
			switch {
			case pattern[i] == '*':
				expression.WriteString("[^x]*")
			case pattern[i] == '?':
				expression.WriteString("[^x]")
			case pattern[i] == '\\' && i+1 < len(pattern):
				i++
				expression.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
			default:
				expression.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
			}
		}
		want := regexp.MustCompile("^(?:" + expression.String() + ")$").MatchString(subject)
		if got := glob(pattern, subject); got != want {
			t.Fatalf("glob(%q, %q) = %t", pattern, subject, got)
		}
	})
}

// TestAddressesAreLikeASet takes and returns addresses beside a set of those in use.
func TestAddressesAreLikeASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cidr := netip.MustParsePrefix("10.0.0.32/28")
		a := newAddresses(cidr)
		const usable = 16 - 5
		used := map[netip.Addr]bool{}
		ip := rapid.IntRange(0, 15)
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				got, ok := a.take()
				if ok != (len(used) < usable) {
					t.Fatalf("take: %t with %d of %d in use", ok, len(used), usable)
				}
				if !ok {
					return
				}
				if used[got] || !cidr.Contains(got) {
					t.Fatalf("take gave %s", got)
				}
				used[got] = true
			},
			"take this": func(t *rapid.T) {
				n := ip.Draw(t, "n")
				wanted := a.at(n)
				reserved := n < 4 || n == 15
				if got, want := a.takeThis(wanted), !reserved && !used[wanted]; got != want {
					t.Fatalf("takeThis(%s) = %t", wanted, got)
				} else if got {
					used[wanted] = true
				}
			},
			"release": func(t *rapid.T) {
				back := a.at(ip.Draw(t, "n"))
				a.release(back)
				delete(used, back)
			},
			"": func(t *rapid.T) {
				if a.available() != usable-len(used) {
					t.Fatalf("%d available with %d in use", a.available(), len(used))
				}
			},
		})
	})
}

// TestStrategies ranks four pools by each allocation strategy.
func TestStrategies(t *testing.T) {
	pools := []ranked{
		{candidate: &candidate{}, price: 1, depth: 2, priority: 4},
		{candidate: &candidate{}, price: 2, depth: 9, priority: 3},
		{candidate: &candidate{}, price: 3, depth: 5, priority: 1},
		{candidate: &candidate{}, price: 4, depth: 10, priority: 2},
	}
	for strategy, want := range map[string][]float64{ // prices in order
		lowestPrice:         {1, 2, 3, 4},
		"diversified":       {1, 2, 3, 4},
		prioritized:         {3, 4, 2, 1},
		capacityOptimized:   {4, 2, 3, 1},
		capacityPrioritized: {3, 4, 2, 1},
		priceCapacity:       {2, 3, 4, 1},
	} {
		sorted := slices.Clone(pools)
		slices.SortFunc(sorted, comparison(strategy))
		var got []float64
		for _, r := range sorted {
			got = append(got, r.price)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: prices %v, want %v", strategy, got, want)
		}
	}
}

func TestZoneIDs(t *testing.T) {
	for region, want := range map[string]string{
		"us-east-1": "use1-az1", "eu-west-1": "euw1-az1", "ap-southeast-2": "apse2-az1", "ca-central-1": "cac1-az1", "us-west-2": "usw2-az1",
	} {
		if got := regionZones(region)[0].ID; got != want {
			t.Errorf("%s: %s, want %s", region, got, want)
		}
	}
}

// TestMarketIsFixedByItsSeed: equal seeds sell alike, others do not.
func TestMarketIsFixedByItsSeed(t *testing.T) {
	prices := func(seed uint64) (list []float64) {
		m, err := newMarket("us-east-1", seed)
		if err != nil {
			t.Fatal(err)
		}
		for _, machine := range m.types {
			list = append(list, m.spotPrice(machine, "us-east-1a"))
		}
		return list
	}
	if !slices.Equal(prices(1), prices(1)) || slices.Equal(prices(1), prices(2)) {
		t.Error("spot prices do not follow the seed")
	}
	if _, err := newMarket("mars-north-1", 1); err == nil {
		t.Error("a region without prices was accepted")
	}
}
