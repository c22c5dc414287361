package lp

import (
	"math/rand/v2"
	"testing"
)

// benchInput is about the size of a real solve: offerings of many sizes and proportions, pods of many sizes.
func benchInput(classes int) Input {
	r := rand.New(rand.NewPCG(1, uint64(classes)))
	in := Input{Axes: 3, Classes: classes}
	for range 600 {
		cores := int64(1) << r.IntN(7)
		memory := cores * int64(2<<r.IntN(3)) << 30
		o := Offering{
			Room:  []int64{1000*cores - 80, memory * 9 / 10, 110},
			Price: float64(cores)*(0.03+0.02*r.Float64()) + float64(memory>>30)*0.003,
		}
		for class := range classes {
			if r.IntN(3) > 0 {
				o.Classes.Add(class)
			}
		}
		in.Offerings = append(in.Offerings, o)
	}
	for range 1000 {
		in.Pods = append(in.Pods, Pods{
			Class:    r.IntN(classes),
			Requests: []int64{int64(50 + r.IntN(4000)), int64(64+r.IntN(16000)) << 20, 1},
			Count:    1 + r.IntN(5),
		})
	}
	return in
}

func BenchmarkNew(b *testing.B) {
	for name, classes := range map[string]int{"one-class": 1, "six-classes": 6} {
		b.Run(name, func(b *testing.B) {
			in := benchInput(classes)
			b.ReportAllocs()
			for b.Loop() {
				New(in)
			}
		})
	}
}

func BenchmarkResolve(b *testing.B) {
	for name, classes := range map[string]int{"one-class": 1, "six-classes": 6} {
		b.Run(name, func(b *testing.B) {
			p := New(benchInput(classes))
			demands := [2][]Left{}
			for k := range p.pods {
				demands[k%2] = append(demands[k%2], Left{k, p.pods[k].Count})
			}
			b.ReportAllocs()
			for k := 0; b.Loop(); k++ {
				p.Resolve(demands[k%2])
			}
		})
	}
}
