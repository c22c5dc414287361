// Package orders looks for an order of a queue in which first fit leaves fewer items. First fit places items one after
// the other and takes none back, so the order decides which are left where items exclude each other. To place the most
// is maximum set packing, which is NP-hard. What is guaranteed:
//
//   - If the items have at most maxOrders distinct orders, every order is tried: no order places more by first fit than
//     the best one. Six items or fewer always do.
//   - Else, if they are of at most maxClassesInOrder classes, every order of whole classes is tried, within the steps.
//   - Else the orders are those of Search.better, within the steps.
//
// The package knows items by their index and what Problem states of them. It places nothing itself: Problem.Try does. It has
// no state between calls. Cost: one Try per order, until none is left or the steps are spent.
package orders
