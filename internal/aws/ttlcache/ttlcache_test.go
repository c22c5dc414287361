package ttlcache

import (
	"testing"
	"time"
)

func TestCache(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := New[string, int](time.Minute, func() time.Time { return now })
	m.Set("a", 1)
	m.SetWithTTL("b", 2, time.Hour)
	m.Set("c", 3)
	m.Delete("c")
	now = now.Add(time.Minute - 1)
	if v, ok := m.Get("a"); !ok || v != 1 {
		t.Errorf("a is %d, %v before its time", v, ok)
	}
	if _, ok := m.Get("c"); ok {
		t.Error("c was dropped and is there")
	}
	now = now.Add(1)
	if _, ok := m.Get("a"); ok {
		t.Error("a outlives its time")
	}
	if v := m.Values(); len(v) != 1 || v[0] != 2 {
		t.Errorf("values %v", v)
	}
	m.Set("d", 4)
	if n := len(m.entries); n != 2 {
		t.Errorf("%d entries take memory, 2 live", n)
	}
}
