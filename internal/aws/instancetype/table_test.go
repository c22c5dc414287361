package instancetype

import "testing"

func TestTables(t *testing.T) {
	branch, err := parseTable(branchText)
	if err != nil {
		t.Fatal(err)
	}
	bandwidth, err := parseTable(bandwidthText)
	if err != nil {
		t.Fatal(err)
	}
	const unknown = -1
	for _, test := range []struct {
		name              string
		branch, bandwidth int64
	}{
		{"m5.large", 9, 750},
		{"m5.xlarge", 18, 1250},
		{"m5.metal", 120, 25000}, // named by the family
		{"c5.metal", 107, 25000}, // the size's number
		{"c6i.8xlarge", 84, 12500},
		{"m6in.32xlarge", 106, 200000},
		{"t3.large", 0, 512},
		{"t3.micro", 0, 64},
		{"t2.large", 0, unknown},
		{"x1.16xlarge", 0, 10000},
		{"u-6tb1.112xlarge", 0, 100000},
		{"hpc6a.48xlarge", unknown, 100000}, // unknown to the resource controller
		{"p6-b300.48xlarge", 120, 6400000},
		{"c8g.metal-48xl", 107, 50000},
		{"i8g.metal-48xl", 107, 90000},
		{"m5.nosuch", unknown, unknown},
		{"nosuch.large", unknown, unknown},
	} {
		for _, which := range []struct {
			name string
			table
			want int64
		}{{"branch", branch, test.branch}, {"bandwidth", bandwidth, test.bandwidth}} {
			got, ok := which.lookup(test.name)
			if !ok {
				got = unknown
			}
			if got != which.want {
				t.Errorf("%s of %s is %d, want %d", which.name, test.name, got, which.want)
			}
		}
	}
}

func TestTableRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no colon":     "m5 large=1",
		"no number":    "m5: large",
		"no integer":   "m5: large=many",
		"family twice": "m5: large=1\nm6 m5: large=2",
		"size twice":   "m5: large=1 medium,large=2",
	} {
		if _, err := parseTable(text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
