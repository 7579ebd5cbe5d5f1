package main

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

// Consumers by name, inboxes of push consumers, and the messages of simple ones by number, for later commands.
var consumers, inboxes, views sync.Map
var numbers atomic.Int64

func subscription(o options) map[string]*rmq.FilterExpression {
	filter := rmq.NewFilterExpression(o.text("expression", "*"))
	if o.has("sql") {
		filter = rmq.NewFilterExpressionWithType(o.text("sql", ""), rmq.SQL92)
	}
	return map[string]*rmq.FilterExpression{o.text("topic", ""): filter}
}

func startSimple(o options) (any, error) {
	consumer, err := rmq.NewSimpleConsumer(o.config(),
		rmq.WithSimpleAwaitDuration(o.duration("awaitMs", 5000)),
		rmq.WithSimpleSubscriptionExpressions(subscription(o)))
	if err != nil {
		return nil, err
	}
	if err := consumer.Start(); err != nil {
		return nil, err
	}
	consumers.Store(o.text("name", ""), consumer)
	stoppers.Store(o.text("name", ""), consumer.GracefulStop)
	return true, nil
}

func simple(o options) rmq.SimpleConsumer {
	found, _ := consumers.Load(o.text("consumer", ""))
	return found.(rmq.SimpleConsumer)
}

func view(o options) *rmq.MessageView {
	found, _ := views.Load(int64(o.number("number", 0)))
	return found.(*rmq.MessageView)
}

func receive(o options) (any, error) {
	limited, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	came, err := simple(o).Receive(limited, int32(o.number("count", 16)), o.duration("invisibleMs", 30_000))
	if status, isStatus := rmq.AsErrRpcStatus(err); isStatus && status.GetCode() == 40401 {
		// This client calls it an error that there is no message; the others do not.
		return []fields{}, nil
	}
	if err != nil {
		return nil, err
	}
	told := []fields{}
	for _, one := range came {
		number := numbers.Add(1)
		views.Store(number, one)
		message := described(one)
		message["number"] = number
		told = append(told, message)
	}
	return told, nil
}

func ack(o options) (any, error) {
	return true, simple(o).Ack(context.Background(), view(o))
}

func change(o options) (any, error) {
	return true, simple(o).ChangeInvisibleDuration(view(o), o.duration("invisibleMs", 0))
}

// A listener fails the first `fails` times (-1: always) on each message whose name ends with `failing`.
func startPush(o options) (any, error) {
	box := newInbox()
	inboxes.Store(o.text("name", ""), box)
	fails := o.number("fails", 0)
	listener := &rmq.FuncMessageListener{Consume: func(view *rmq.MessageView) rmq.ConsumerResult {
		name := nameOf(view.GetBody())
		before := box.add(name, described(view))
		if strings.HasSuffix(name, o.text("failing", "")) && (fails < 0 || before < fails) {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	}}
	consumer, err := rmq.NewPushConsumer(o.config(),
		rmq.WithPushSubscriptionExpressions(subscription(o)),
		rmq.WithPushMessageListener(listener))
	if err != nil {
		return nil, err
	}
	if err := consumer.Start(); err != nil {
		return nil, err
	}
	stoppers.Store(o.text("name", ""), consumer.GracefulStop)
	return true, nil
}

// The inbox of a stopped consumer stays: a consumer goes on while it stops.
func received(o options) (any, error) {
	box, _ := inboxes.Load(o.text("consumer", ""))
	return box.(*inbox).take(o), nil
}
