// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import "math"

// How minimize searches.
const (
	// iterations bounds the steps.
	iterations = 150
	// longest bounds a step in any coordinate: a factor of e^2 of a parameter.
	longest = 2.0
	// armijo is the part of the predicted descent that a step must reach.
	armijo = 1e-4
	// enough ends the search when the loss falls by less.
	enough = 1e-10
)

// minimize moves a vector to a local minimum within the bounds, and returns the loss
// there: BFGS on the free coordinates with projection (Nocedal and Wright, Numerical
// Optimization, chapter 6), as no library of this module minimizes within bounds.
func (p *problem) minimize(v *vector) float64 {
	project(v)
	loss := p.loss(v, math.Inf(1))
	gradient := p.gradient()
	inverse := identity()
	for range iterations {
		active := p.active(v, &gradient)
		direction := descend(&inverse, &gradient, &active)
		slope := dot(&direction, &gradient)
		if slope > -1e-12 {
			inverse = identity()
			direction = descend(&inverse, &gradient, &active)
			if slope = dot(&direction, &gradient); slope > -1e-14 {
				break
			}
		}
		next, nextLoss, moved := p.search(v, loss, &direction, slope)
		if !moved {
			break
		}
		nextGradient := p.gradient()
		var step, change vector
		for i := range step {
			step[i], change[i] = next[i]-v[i], nextGradient[i]-gradient[i]
		}
		update(&inverse, &step, &change)
		gained := loss - nextLoss
		*v, loss, gradient = next, nextLoss, nextGradient
		if gained < enough {
			break
		}
	}
	return loss
}

func project(v *vector) {
	for i := range v {
		v[i] = min(max(v[i], lower[i]), upper[i])
	}
}

// active reports the coordinates that cannot move: they are fixed, or at a bound
// that the descent would cross.
func (p *problem) active(v, gradient *vector) (active [parameters]bool) {
	for i := range active {
		active[i] = p.isFixed[i] || v[i] <= lower[i] && gradient[i] > 0 || v[i] >= upper[i] && gradient[i] < 0
	}
	return active
}

// search halves a step until the loss falls enough.
func (p *problem) search(v *vector, loss float64, direction *vector, slope float64) (next vector, nextLoss float64, moved bool) {
	size := 1.0
	for _, value := range direction {
		if math.Abs(value)*size > longest {
			size = longest / math.Abs(value)
		}
	}
	for range 40 {
		for i := range next {
			next[i] = v[i] + size*direction[i]
		}
		project(&next)
		bound := loss + armijo*size*slope
		if nextLoss = p.loss(&next, bound); nextLoss <= bound {
			return next, nextLoss, true
		}
		size /= 2
	}
	return next, nextLoss, false
}

type matrix [parameters][parameters]float64

func identity() (m matrix) {
	for i := range m {
		m[i][i] = 1
	}
	return m
}

// descend returns the direction of a quasi-Newton step among the free coordinates.
func descend(inverse *matrix, gradient *vector, active *[parameters]bool) (direction vector) {
	for i := range direction {
		for j := range direction {
			if !active[i] && !active[j] {
				direction[i] -= inverse[i][j] * gradient[j]
			}
		}
	}
	return direction
}

func dot(a, b *vector) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// update is the BFGS update of the inverse Hessian.
func update(inverse *matrix, step, change *vector) {
	curvature := dot(step, change)
	if curvature <= 1e-12 {
		return
	}
	var product vector
	for i := range product {
		for j := range product {
			product[i] += inverse[i][j] * change[j]
		}
	}
	factor := (1 + dot(change, &product)/curvature) / curvature
	for i := range inverse {
		for j := range inverse {
			inverse[i][j] += factor*step[i]*step[j] - (product[i]*step[j]+step[i]*product[j])/curvature
		}
	}
}
