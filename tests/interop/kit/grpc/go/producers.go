package main

import (
	"context"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

const callTimeout = 30 * time.Second

// Producers by name, and what each was asked for as the owner of transactions without an end.
var producers, checks sync.Map

func startProducer(o options) (any, error) {
	name := o.text("name", "")
	chosen := []rmq.ProducerOption{}
	if o.has("topics") {
		chosen = append(chosen, rmq.WithTopics(strings.Split(o.text("topics", ""), ",")...))
	}
	if o.text("checker", "") == "true" {
		asked := newInbox()
		checks.Store(name, asked)
		chosen = append(chosen, rmq.WithTransactionChecker(&rmq.TransactionChecker{
			Check: func(view *rmq.MessageView) rmq.TransactionResolution {
				name := nameOf(view.GetBody())
				asked.add(name, described(view))
				return resolution(name)
			},
		}))
	}
	producer, err := rmq.NewProducer(o.config(), chosen...)
	if err != nil {
		return nil, err
	}
	if err := producer.Start(); err != nil {
		return nil, err
	}
	producers.Store(name, producer)
	stoppers.Store(name, producer.GracefulStop)
	return true, nil
}

// The first word of a name says how the transaction ends.
func resolution(name string) rmq.TransactionResolution {
	switch word, _, _ := strings.Cut(name, "-"); word {
	case "commit":
		return rmq.COMMIT
	case "rollback":
		return rmq.ROLLBACK
	}
	return rmq.UNKNOWN
}

func producer(o options) rmq.Producer {
	found, _ := producers.Load(o.text("producer", ""))
	return found.(rmq.Producer)
}

// Send one message after the other; what each send ended with.
func send(o options) (any, error) {
	sent := []fields{}
	for _, name := range strings.Split(o.text("bodies", ""), ",") {
		told := fields{"body": name}
		receipts, err := sendOne(o, name)
		if err != nil {
			for key, value := range failure(err) {
				told[key] = value
			}
		} else {
			told["messageId"] = receipts[0].MessageID
			told["recallHandle"] = receipts[0].RecallHandle
		}
		sent = append(sent, told)
	}
	return sent, nil
}

func sendOne(o options, name string) ([]*rmq.SendReceipt, error) {
	message, err := newMessage(o, name)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return producer(o).Send(limited, message)
}

// Each message in a transaction of its own, which ends as its name says.
func sendTransactions(o options) (any, error) {
	sent := []fields{}
	for _, name := range strings.Split(o.text("bodies", ""), ",") {
		message, err := newMessage(o, name)
		if err != nil {
			return nil, err
		}
		transaction := producer(o).BeginTransaction()
		receipts, err := producer(o).SendWithTransaction(context.Background(), message, transaction)
		if err != nil {
			return nil, err
		}
		sent = append(sent, fields{"body": name, "messageId": receipts[0].MessageID})
		if o.text("end", "true") != "true" {
			continue
		}
		switch resolution(name) {
		case rmq.COMMIT:
			err = transaction.Commit()
		case rmq.ROLLBACK:
			err = transaction.RollBack()
		}
		if err != nil {
			return nil, err
		}
	}
	return sent, nil
}

func takeChecks(o options) (any, error) {
	asked, _ := checks.Load(o.text("producer", ""))
	return asked.(*inbox).take(o), nil
}

func recall(o options) (any, error) {
	return producer(o).Recall(context.Background(), o.text("topic", ""), o.text("handle", ""))
}
