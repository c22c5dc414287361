package lp

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// randomInput is an instance that is small enough to try all plans: up to seven pods, each of its own size.
func randomInput(r *rand.Rand) Input {
	in := Input{Axes: 1 + r.IntN(4), Classes: 1 + r.IntN(3)}
	for range 1 + r.IntN(5) {
		cores := int64(1 + r.IntN(16))
		o := Offering{Room: make([]int64, in.Axes), Price: float64(cores) * (0.03 + 0.04*r.Float64())}
		for axis := range o.Room {
			o.Room[axis] = cores * int64(1+r.IntN(8)) * 100
			if axis > 1 && r.IntN(2) == 0 {
				o.Room[axis] = 0 // a resource that only some nodes have
			}
		}
		for class := range in.Classes {
			if r.IntN(3) > 0 {
				o.Classes.Add(class)
			}
		}
		in.Offerings = append(in.Offerings, o)
	}
	for range 1 + r.IntN(7) {
		p := Pods{Class: r.IntN(in.Classes), Requests: make([]int64, in.Axes), Count: 1}
		for axis := range p.Requests {
			if axis < 2 || r.IntN(3) == 0 {
				p.Requests[axis] = int64(r.IntN(1500))
			}
		}
		in.Pods = append(in.Pods, p)
	}
	return in
}

// cheapestPlan tries all partitions of the pods among nodes, and returns the least price.
func cheapestPlan(in Input, pods []int) float64 {
	if len(pods) == 0 {
		return 0
	}
	best := math.Inf(1)
	others := pods[1:]
	for with := range 1 << len(others) { // the pods on the node of the first one
		node, rest := []int{pods[0]}, []int(nil)
		for i, k := range others {
			if with&(1<<i) != 0 {
				node = append(node, k)
			} else {
				rest = append(rest, k)
			}
		}
		if price := cheapestOffering(in, node); !math.IsInf(price, 1) {
			best = min(best, price+cheapestPlan(in, rest))
		}
	}
	return best
}

// cheapestOffering is the least price of one node for all of the pods.
func cheapestOffering(in Input, pods []int) float64 {
	best := math.Inf(1)
	for _, o := range in.Offerings {
		ok := true
		for axis, room := range o.Room {
			total := int64(0)
			for _, k := range pods {
				total += in.Pods[k].Requests[axis]
				ok = ok && o.Classes.Has(in.Pods[k].Class)
			}
			ok = ok && total <= room
		}
		if ok {
			best = min(best, o.Price)
		}
	}
	return best
}

// holdable are the pods that some offering holds.
func holdable(in Input) (out []int) {
	for k := range in.Pods {
		if !math.IsInf(cheapestOffering(in, []int{k}), 1) {
			out = append(out, k)
		}
	}
	return out
}

// checkSolution reports what is wrong with the program's solution for these pods. Their cheapest plan costs best.
func checkSolution(p *Program, pods []int, best float64) error {
	for k := range p.columns {
		if c := &p.columns[k]; nodeCost(p, c) > c.price {
			return fmt.Errorf("the prices of a node of offering %d add up to %.12f, more than its price of %.12f", k, nodeCost(p, c), c.price)
		}
	}
	total := 0.0
	for _, k := range pods {
		total += p.Value(k)
	}
	if total > best {
		return fmt.Errorf("the pods are worth %.9f, and a plan costs %.9f", total, best)
	}
	return nil
}

// nodeCost returns what the whole room of a node costs at dual-feasible prices.
func nodeCost(p *Program, c *column) float64 {
	return dotQuads(p.sizes.at(c.index), p.feasible.at(c.index))
}

// The bound holds after any number of rounds, and after solving again for some of the pods.
func TestNoPlanCostsLessThanThePodsAreWorth(t *testing.T) {
	tight, all := 0.0, 0.0
	for seed := range uint64(800) {
		r := rand.New(rand.NewPCG(seed/2, 1))
		in := randomInput(r)
		in.Partial = seed%2 == 1
		pods := holdable(in)
		best := cheapestPlan(in, pods)
		for rounds := range 9 {
			p := newProgram(in)
			p.generateColumns(effort{rounds: rounds})
			if err := checkSolution(p, pods, best); err != nil {
				t.Fatalf("seed %d, %d rounds: %v", seed, rounds, err)
			}
		}
		p := New(in)
		if err := checkSolution(p, pods, best); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(pods) > 0 {
			for _, k := range pods {
				tight += p.Value(k) / best
			}
			all++
		}
		for len(pods) > 0 {
			gone := r.IntN(len(pods))
			pods = append(pods[:gone], pods[gone+1:]...)
			var left []Left
			for _, k := range pods {
				left = append(left, Left{k, 1})
			}
			p.Resolve(left)
			if err := checkSolution(p, pods, cheapestPlan(in, pods)); err != nil {
				t.Fatalf("seed %d, %d pods left: %v", seed, len(pods), err)
			}
		}
	}
	// A bound of zero is valid too, but useless.
	if tight < 0.5*all {
		t.Errorf("on average the bound is %.2f of the best plan", tight/all)
	}
}

// The program's optimum lies between the value of the pods and the price of the patterns. Both are checked on their own,
// so when they meet, both are right.
func TestLowerAndUpperBoundMeet(t *testing.T) {
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed/2, 2))
		in := randomInput(r)
		in.Partial = seed%2 == 1
		for k := range in.Pods {
			in.Pods[k].Count = 1 + r.IntN(40)
		}
		p := New(in)
		if len(p.buckets) == 0 {
			continue
		}
		cost, err := planCost(p)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		bound := 0.0
		for k := range p.buckets {
			bound += p.buckets[k].demand * p.stabilityCenter[k]
		}
		if bound > cost*(1+tiny) || bound < cost*(1-2*fullEffort.gap) {
			t.Errorf("seed %d: the pods are worth %.6f, and patterns for them cost %.6f", seed, bound, cost)
		}
	}
}

// planCost is the price of the patterns that the master LP chooses, or what is wrong with them.
func planCost(p *Program) (float64, error) {
	cost := 0.0
	held := make([]float64, len(p.buckets))
	for row, j := range p.master.basis {
		if p.master.level[row] < 0 {
			return 0, fmt.Errorf("%.9f nodes of a pattern", p.master.level[row])
		}
		if j < 0 {
			continue
		}
		used := make([]float64, len(p.axesInUse))
		from := &p.master.patterns[j]
		for _, e := range from.entries {
			held[e.row] += e.amount * p.master.level[row]
			for n := range used {
				used[n] += p.buckets[e.row].amount[n/4][n%4] * e.amount
			}
			if !p.columns[from.column].classes.Has(p.buckets[e.row].class) {
				return 0, fmt.Errorf("a pattern of offering %d has pods that cannot use it", from.column)
			}
		}
		for n, x := range used {
			if size := p.columns[from.column].pricing.size[n]; x > size*(1+1e-6) {
				return 0, fmt.Errorf("a pattern of offering %d takes %.9f of %.9f", from.column, x, size)
			}
		}
		cost += p.columns[from.column].price * p.master.level[row]
	}
	for k := range p.buckets {
		if held[k] < p.buckets[k].demand*(1-1e-6) {
			return 0, fmt.Errorf("the patterns hold %.9f of %.9f of bucket %d", held[k], p.buckets[k].demand, k)
		}
	}
	return cost, nil
}

// Room that is paid for is worth at least the pods that it holds.
func TestExistingRoomIsWorthThePodsInIt(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		in := randomInput(r)
		p := New(in)
		free := make([]float64, in.Axes)
		for axis := range free {
			free[axis] = float64(r.IntN(3000))
		}
		duals := p.ExistingRoomDuals(free)
		for k := range in.Pods {
			worth := 0.0
			for axis, x := range in.Pods[k].Requests {
				worth += float64(x) * duals[axis]
			}
			if p.Value(k) > worth+tiny {
				t.Errorf("seed %d: pods %d are worth %.9f each, and the room that they take %.9f", seed, k, p.Value(k), worth)
			}
		}
	}
}

// knapsack is a pricing LP, with the value of each item and the amounts per axis.
type knapsack struct {
	pricingLP
	values  []float64
	amounts [][]float64
}

func randomKnapsack(r *rand.Rand) (k knapsack, packed quads) {
	items, axes := 1+r.IntN(6), 1+r.IntN(6)
	packed = newQuads(items, axes)
	k.duals = make([]quad, packed.stride)
	for range axes {
		k.size, k.amounts = append(k.size, 0.1+r.Float64()), append(k.amounts, make([]float64, items))
	}
	for i := range items {
		k.items, k.values = append(k.items, int32(i)), append(k.values, r.Float64())
		for axis := range axes {
			if axis == 0 || r.IntN(4) > 0 {
				k.amounts[axis][i] = 0.01 + r.Float64()
			}
			packed.at(i)[axis/4][axis%4] = k.amounts[axis][i]
		}
	}
	return k, packed
}

// The most value that a room holds is at a vertex: with n axes, at most n buckets, and the other axes with room left.
// New prices start from the last solution.
func TestRoomHoldsTheMostValuableContent(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 4))
		k, packed := randomKnapsack(r)
		for range 4 {
			got, want := k.solve(k.values, packed, make([]float64, len(k.size))), k.mostValue()
			if math.Abs(got-want) > 1e-7*want {
				t.Errorf("seed %d: %d items on %d axes: %.9f, want %.9f", seed, len(k.items), len(k.size), got, want)
			}
			room := 0.0
			for axis, size := range k.size {
				room += size * k.dualOf(axis)
			}
			if math.Abs(room-want) > 1e-7*want {
				t.Errorf("seed %d: the room is worth %.9f at its dual prices, and holds %.9f", seed, room, want)
			}
			for i, value := range k.values {
				cost := 0.0
				for axis := range k.size {
					cost += k.dualOf(axis) * k.amounts[axis][i]
				}
				if cost < value*(1-1e-7) {
					t.Errorf("seed %d: item %d is worth %.9f and costs %.9f", seed, i, value, cost)
				}
				k.values[i] *= 2 * r.Float64()
			}
		}
	}
}

func (k *knapsack) dualOf(axis int) float64 { return k.duals[axis/4][axis%4] }

// mostValue tries all vertices: all choices of as many columns as there are axes, among items and slacks.
func (k *knapsack) mostValue() float64 {
	items, axes := len(k.values), len(k.size)
	best := 0.0
	for chosen := range 1 << (items + axes) {
		if bits.OnesCount(uint(chosen)) != axes {
			continue
		}
		var columns []int
		matrix := make([][]float64, axes) // with the right side, which is the size
		for j := range items + axes {
			if chosen&(1<<j) == 0 {
				continue
			}
			columns = append(columns, j)
			for axis := range matrix {
				x := 0.0
				if j < items {
					x = k.amounts[axis][j]
				} else if j-items == axis {
					x = 1
				}
				matrix[axis] = append(matrix[axis], x)
			}
		}
		for axis := range matrix {
			matrix[axis] = append(matrix[axis], k.size[axis])
		}
		value := 0.0
		for i, x := range gauss(matrix) {
			if x < -1e-9 {
				value = math.Inf(-1)
			}
			if columns[i] < items {
				value += x * k.values[columns[i]]
			}
		}
		best = max(best, value)
	}
	return best
}

// gauss solves the linear equations; nil if they have no single solution.
func gauss(m [][]float64) []float64 {
	n := len(m)
	for k := range n {
		top := k
		for i := k; i < n; i++ {
			if math.Abs(m[i][k]) > math.Abs(m[top][k]) {
				top = i
			}
		}
		if m[k], m[top] = m[top], m[k]; math.Abs(m[k][k]) < 1e-9 {
			return nil
		}
		for i := range n {
			if i != k {
				factor := m[i][k] / m[k][k]
				for j := k; j <= n; j++ {
					m[i][j] -= factor * m[k][j]
				}
			}
		}
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = m[i][n] / m[i][i]
	}
	return out
}
